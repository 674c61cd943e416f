"""What is in flight: launched, and not closed by any cut yet. Kept in the process that owns the run, and derived from
its directory whenever that process starts. Every episode stands here under the id of its last action.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from mlrl_core.config import RunConfig
from mlrl_core.experience.batch_policy import Flight
from mlrl_core.experience.cuts import closed_ids, wave_ids
from mlrl_core.experience.episodes import is_last
from mlrl_core.experience.run_directory import RunDirectory, wave_of
from mlrl_core.experience.store import ExperienceStore
from mlrl_core.records import EXCLUDED_OUTCOMES


@dataclass(frozen=True, slots=True)
class View:
    """A moment of the flights. ``finished`` in order of their ends, without those of ``lost`` (``infra_error`` and
    ``cancelled``)."""

    pending: tuple[str, ...]
    finished: tuple[Flight[str], ...]
    lost: tuple[str, ...]

    @property
    def oldest_pending(self) -> int | None:
        """The oldest version among the pending ones: wave n was sampled by version n - 1."""
        return min((wave_of(each) - 1 for each in self.pending), default=None)


class Flights:
    """Safe from any thread. Stages report starts and ends, the flow asks for a ``view`` and closes what was cut."""

    def __init__(self, run: RunDirectory, config: RunConfig, store: ExperienceStore) -> None:
        self._run, self._config, self._store = run, config, store
        self._changed = threading.Condition()
        self._pending: set[str] = set()
        self._finished: dict[str, Flight[str]] = {}
        self._lost: set[str] = set()
        self._began: dict[int, float] = {}
        self._closed: set[str] = set()
        self._newest = 0

    def restore(self, done: int) -> list[int]:
        """Take in what the run's directory holds after ``done`` steps. Returns the waves with solutions in flight."""
        for step in range(1, done + 2):
            self._closed |= set(closed_ids(self._run, self._config, step))
        launched = range(1, done + 2)
        open_waves = [wave for wave in launched if self._run.launches(wave).exists() and not self.is_closed(wave)]
        for wave in open_waves:
            self.launch(wave)
        return open_waves

    def launch(self, wave: int) -> None:
        """The wave's solutions are in flight: finished where they have a row, pending else. Safe to repeat."""
        rows = self._store.frame([wave], ["solution_id", "outcome", "started_at", "finished_at"]).rows()
        with self._changed:
            self._newest = max(self._newest, wave)
            known = self._closed | self._finished.keys() | self._lost
            self._pending |= self._episodes(wave) - known
            for solution_id, outcome, started_at, finished_at in rows:
                self._end(solution_id, outcome, started_at, finished_at)

    @property
    def newest(self) -> int:
        """The wave launched last."""
        return self._newest

    def begin(self, solution_id: str) -> None:
        """A program is handed to the sandbox."""
        if not self._ends_an_episode(solution_id):
            return
        with self._changed:
            self._began.setdefault(wave_of(solution_id), time.time())

    def began_at(self, wave: int) -> float:
        """When the first program of the wave that ends an episode started in this process; now, while none has."""
        with self._changed:
            return self._began.get(wave, time.time())

    def end(self, solution_id: str, outcome: str, started_at: float, finished_at: float) -> None:
        """The solution has its row."""
        with self._changed:
            self._end(solution_id, outcome, started_at, finished_at)

    def _end(self, solution_id: str, outcome: str, started_at: float, finished_at: float) -> None:
        if solution_id in self._closed or not self._ends_an_episode(solution_id):
            return
        self._pending.discard(solution_id)
        if outcome in EXCLUDED_OUTCOMES:
            self._lost.add(solution_id)
        else:
            self._finished[solution_id] = Flight(solution_id, wave_of(solution_id) - 1, started_at, finished_at)
        self._changed.notify_all()

    def view(self) -> View:
        """What is in flight now."""
        with self._changed:
            finished = sorted(self._finished.values(), key=lambda flight: (flight.finished_at, flight.item))
            return View(tuple(sorted(self._pending)), tuple(finished), tuple(sorted(self._lost)))

    def close(self, solution_ids: tuple[str, ...]) -> None:
        """Take what a cut has closed out of flight."""
        with self._changed:
            self._closed |= set(solution_ids)
            self._pending -= self._closed
            self._lost -= self._closed
            for solution_id in solution_ids:
                self._finished.pop(solution_id, None)

    def is_closed(self, wave: int) -> bool:
        """Whether nothing of the wave is in flight."""
        with self._changed:
            return self._episodes(wave) <= self._closed

    def _episodes(self, wave: int) -> set[str]:
        return {each for each in wave_ids(self._run, self._config, wave) if self._ends_an_episode(each)}

    def _ends_an_episode(self, solution_id: str) -> bool:
        return is_last(solution_id, self._config.improve.actions)

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, limit_s: float) -> None:
        """Until a solution ends, at most ``limit_s``."""
        with self._changed:
            self._changed.wait(limit_s)
