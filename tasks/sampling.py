"""Sampling a wave: every solution has its own task, all of them share one batched pass of the generator.

The whole wave is always sampled together, whichever solutions are still missing: a response must not depend on who
else was in the batch, and after a resume floating point would make it so. Same wave, same version, same responses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mlrl_core.errors import InfraError
from mlrl_core.records import Solution

_POLL_S = 0.1


class Interrupted(Exception):
    """The run is being stopped; nothing was published and a resume repeats the work."""


class Agent(Protocol):
    """Samples the solutions of a wave in slot order, with a policy version that has been loaded."""

    def __call__(self, wave: int, policy_version: int, size: int) -> Sequence[Solution]: ...


class WaveSampler:
    """The first task of a wave to ask samples it; the others wait for the result, with a deadline."""

    def __init__(self, agent: Agent, cancelled: Callable[[], bool], deadline_s: float) -> None:
        self._agent = agent
        self._cancelled = cancelled
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._wave: int | None = None
        self._solutions: dict[str, Solution] = {}

    def solution(self, wave: int, policy_version: int, size: int, solution_id: str) -> Solution:
        """One solution of the wave of ``size``. Raises InfraError when the generator fails or the deadline passes."""
        self._acquire(wave)
        try:
            if self._wave != wave:
                self._solutions = {s.solution_id: s for s in self._agent(wave, policy_version, size)}
                self._wave = wave
            return self._solutions[solution_id]
        finally:
            self._lock.release()

    def _acquire(self, wave: int) -> None:
        end = time.monotonic() + self._deadline_s
        while not self._lock.acquire(timeout=_POLL_S):
            if self._cancelled():
                raise Interrupted
            if time.monotonic() > end:
                raise InfraError(f"wave {wave} was not sampled within {self._deadline_s:g} s")
        if self._cancelled():
            self._lock.release()
            raise Interrupted
