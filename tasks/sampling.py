"""Sampling a wave: every solution has its own task, all of them share one pass of the generator.

The whole wave is always sampled together, whichever solutions are still missing: a response must not depend on who
else was in the batch, and after a resume floating point would make it so. Same wave, same version, same responses.
Where an episode has two actions, the second ones of a wave are a pass of their own. Each task goes on as soon as its
own solution is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mlrl_core.errors import InfraError
from mlrl_core.records import Solution

_POLL_S = 0.1


class Interrupted(Exception):
    """The run is being stopped; nothing was published and a resume repeats the work."""


class Agent(Protocol):
    """Samples solutions of a wave, in any order, with a policy version that has been loaded."""

    def __call__(self, wave: int, policy_version: int, slots: Sequence[int]) -> Iterable[Solution]: ...


@dataclass
class _Pass:
    """One pass over slots of a wave: what it has given so far, and how it ended."""

    wave: int
    slots: tuple[int, ...]
    solutions: dict[str, Solution] = field(default_factory=dict)
    error: BaseException | None = None
    ended: bool = False


class WaveSampler:
    """The first task of a wave to ask starts its pass, in a thread of its own; all wait for theirs, with a deadline.
    One pass at a time."""

    def __init__(self, agent: Agent, cancelled: Callable[[], bool], deadline_s: float) -> None:
        self._agent = agent
        self._cancelled = cancelled
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        self._pass: _Pass | None = None

    def solution(self, wave: int, policy_version: int, slots: tuple[int, ...], solution_id: str) -> Solution:
        """One solution of a wave; ``slots``: all that are sampled with it.

        Raises InfraError when the generator fails or the deadline passes, and whatever else the agent raises; the next
        to ask then starts a new pass.
        """
        end = time.monotonic() + self._deadline_s
        mine: _Pass | None = None
        with self._changed:
            while not self._cancelled():
                if mine is None:
                    mine = self._join(wave, policy_version, slots)
                if mine is not None and solution_id in mine.solutions:
                    return mine.solutions[solution_id]
                if mine is not None and mine.ended:
                    if mine.error is not None:
                        raise mine.error
                    raise KeyError(f"wave {wave} was sampled without {solution_id}")
                if time.monotonic() > end:
                    raise InfraError(f"wave {wave} was not sampled within {self._deadline_s:g} s")
                self._changed.wait(_POLL_S)
            raise Interrupted

    def close(self, limit_s: float) -> None:
        """Wait for the pass under way, which ends soon once everything is cancelled."""
        end = time.monotonic() + limit_s
        with self._changed:
            while self._pass is not None and not self._pass.ended and time.monotonic() < end:
                self._changed.wait(_POLL_S)

    def _join(self, wave: int, policy_version: int, slots: tuple[int, ...]) -> _Pass | None:
        """The pass of these slots, started if need be; None while another one is under way."""
        current = self._pass
        if current is not None and (current.wave, current.slots) == (wave, slots) and current.error is None:
            return current
        if current is not None and not current.ended:
            return None
        self._pass = started = _Pass(wave, slots)
        arguments = (started, policy_version)
        threading.Thread(target=self._run, args=arguments, name=f"sampling {wave}", daemon=True).start()
        return started

    def _run(self, current: _Pass, policy_version: int) -> None:
        error: BaseException | None = None
        try:
            for solution in self._agent(current.wave, policy_version, current.slots):
                with self._changed:
                    current.solutions[solution.solution_id] = solution
                    self._changed.notify_all()
                if self._cancelled():
                    break
        except BaseException as raised:  # told to those who wait
            error = raised
        finally:
            with self._changed:
                current.error, current.ended = error, True
                self._changed.notify_all()
