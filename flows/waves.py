"""The waves of a run, each rolled out in a thread of its own, and the cuts that make batches of them.

A wave's stragglers go on while the policy is updated and the next wave is sampled; they are bounded by their own limits
and by the end of the run. What is decided is on disk before anything follows from it (``experience.cuts``).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.rollout import rollout
from mlrl_core.errors import InfraError
from mlrl_core.experience.batch_policy import Cut, decide
from mlrl_core.experience.cuts import CutRecord, batch_policy_of, read_cut, write_cut
from mlrl_core.experience.episodes import episode_of
from mlrl_core.experience.flights import View
from mlrl_core.experience.run_directory import wave_of
from tasks.resources import Resources
from tasks.score import GRADE_DEADLINE_S

_POLL_S = 0.25
_SAMPLING_POLL_S = 0.02
_ENDING_LIMIT_S = GRADE_DEADLINE_S + 120.0  # a killed program goes at once, one that has just ended is still graded
_STOP_LIMIT_S = 5.0


class Waves:
    """Owned by the thread of the training flow."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.policy = batch_policy_of(resources.config)
        self._restored: list[int] = []
        self._threads: dict[int, threading.Thread] = {}
        self._failures: dict[int, BaseException] = {}

    def restore(self, done: int) -> None:
        """Go on with what is in flight after ``done`` steps."""
        resources = self.resources
        self._restored = resources.flights.restore(done)
        begun = read_cut(resources.run, done + 1)
        if begun is not None and begun.admitted is None:  # its kills may have been under way
            for wave in self._ending(done + 1):
                resources.control(wave).halt()
        if done < resources.config.steps:
            for wave in self._restored:
                self.start(wave)

    def start(self, wave: int) -> None:
        """Roll out a wave in the background, and return when it is sampled; nothing to do for one that runs.

        Sampled first, because the next policy version is loaded by whoever calls this.
        """
        if wave not in self._threads:
            self.resources.flights.launch(wave)
            context = contextvars.copy_context()  # the flow that this is a sub-flow of
            thread = threading.Thread(
                target=context.run, args=(self._roll_out, wave), name=f"rollout {wave}", daemon=True
            )
            self._threads[wave] = thread
            thread.start()
        while self._threads[wave].is_alive() and not self.resources.control(wave).sampled.wait(_SAMPLING_POLL_S):
            self._check()

    def cut(self, step: int) -> CutRecord:
        """Decide who is in the batch that makes version ``step``, as soon as the batch policy allows it."""
        resources = self.resources
        record = read_cut(resources.run, step)
        if record is None:
            record = self._wait_for_cut(step)
            write_cut(resources.run, record)
        if record.admitted is None:
            ending = self._ending(step)
            for wave in ending:
                resources.control(wave).halt()
            self._join(ending, _ENDING_LIMIT_S)
            record = self._settle(record, ending)
            write_cut(resources.run, record)
        resources.flights.close(record.closed)
        self._join(self.closed_at(record), _ENDING_LIMIT_S)
        return record

    def closed_at(self, record: CutRecord) -> list[int]:
        """Waves of which nothing is in flight any more, and was until this cut."""
        waves = sorted({wave_of(each) for each in record.closed})
        return [wave for wave in waves if self.resources.flights.is_closed(wave)]

    def finish(self) -> list[int]:
        """End what is in flight: no step will use it. Returns the waves that were ended."""
        pending = {wave_of(each) for each in self.resources.flights.view().pending}
        unclosed = {wave for wave in self._restored if not self.resources.store.shard(wave).exists()}
        left = sorted(pending | unclosed | self._alive())
        for wave in left:
            self.resources.control(wave).halt()
            self.start(wave)
        self._join(left, _ENDING_LIMIT_S)
        return left

    def stop(self) -> None:
        """Wait a moment for the threads to notice that the run is being stopped."""
        end = time.monotonic() + _STOP_LIMIT_S
        for wave in self._alive():
            self._threads[wave].join(max(end - time.monotonic(), 0))

    def _roll_out(self, wave: int) -> None:
        try:
            with _no_heartbeat():
                rollout(str(self.resources.run.path), wave)
        except BaseException as error:  # raised again where the run waits
            self._failures[wave] = error
        finally:
            self.resources.flights.wake()

    def _alive(self) -> set[int]:
        return {wave for wave, thread in self._threads.items() if thread.is_alive()}

    def _check(self) -> None:
        self.resources.check()
        for wave in sorted(self._failures):
            raise self._failures[wave]

    def _join(self, waves: Iterable[int], limit_s: float) -> None:
        end = time.monotonic() + limit_s
        for wave in waves:
            thread = self._threads.get(wave)
            while thread is not None and thread.is_alive():
                self._check()
                if time.monotonic() > end:
                    raise InfraError(f"wave {wave} has not ended within {limit_s:g} s after its cut")
                thread.join(_SAMPLING_POLL_S)
        self._check()

    def _ending(self, step: int) -> list[int]:
        """Waves that no later batch can use: those still running are killed at this step's cut."""
        policy, flights = self.policy, self.resources.flights
        if policy.kills:
            newest = step
        elif policy.drops_after is not None:
            newest = step - policy.drops_after  # of version step - 1 - drops_after
        else:
            return []
        return [wave for wave in range(1, newest + 1) if not flights.is_closed(wave)]

    def _wait_for_cut(self, step: int) -> CutRecord:
        flights = self.resources.flights
        while True:
            self._check()
            view, now = flights.view(), time.time()
            record = CutRecord(step, now, flights.began_at(step))
            if self._decide(record, view, len(view.pending), view.oldest_pending) is not None:
                return record
            if not view.pending and not view.finished:
                raise InfraError(f"wave {step} has no solution that could be trained on")
            flights.wait(_POLL_S)

    def _settle(self, record: CutRecord, ending: list[int]) -> CutRecord:
        """Who is in the batch: of what had ended at the cut, some may have got its row only now."""
        view = self.resources.flights.view()
        pending = [each for each in view.pending if wave_of(each) not in ending]
        cut = self._decide(record, view, len(pending), None)
        if cut is None:
            raise InfraError(f"the cut of step {record.step} can't be repeated: rows of its batch are gone")
        used = {flight.item for flight in (*cut.admitted, *cut.dropped)}
        everything = [*view.pending, *(flight.item for flight in view.finished), *view.lost]
        closed = used | set(view.lost) | {each for each in everything if wave_of(each) in ending}
        if self.policy.name == "wait_all":
            closed = set(everything)
        actions = self.resources.config.improve.actions

        def whole(episodes: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(each for last in episodes for each in episode_of(last, actions)))

        return replace(
            record,
            at=cut.at,
            admitted=whole(flight.item for flight in cut.admitted),
            closed=whole(closed),
            carried=(len(everything) - len(closed)) * actions,
        )

    def _decide(self, record: CutRecord, view: View, pending: int, oldest: int | None) -> Cut[str] | None:
        finished = view.finished
        if self.policy.kills:  # by the clock: a program may end while the others are being killed
            finished = tuple(flight for flight in finished if (flight.finished_at or 0.0) <= record.at)
        return decide(self.policy, finished, pending, record.step - 1, record.at, record.opened_at, oldest)


@contextmanager
def _no_heartbeat() -> Iterator[None]:
    """A sub-flow's heartbeat takes a second to stop, and says nothing that the flow above does not say."""
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield
