"""A run without models: actors whose programs take given durations, through the project's own batch policies.

Discrete events on a simulated clock. It answers what a batch policy and a weighting do to the share of slow solutions,
before anybody spends a night of executions to find out. Generation and training take no time.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from mlrl_core.experience.batch_policy import BatchPolicy, Cut, Flight, available_times, decide
from mlrl_core.experience.inclusion import inclusion_probabilities

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Program(Generic[T]):
    """What an actor runs: anything, and the seconds it takes."""

    item: T
    duration_s: float


@dataclass(frozen=True, slots=True)
class SimulatedBatch(Generic[T]):
    """A batch in order of admission. ``inclusion`` comes from the recorded starts and cuts, as in a live run; it is 1
    as long as too few launches have met their last possible cut. ``staleness`` counts versions."""

    at: float
    programs: tuple[Program[T], ...]
    staleness: tuple[int, ...]
    inclusion: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """``in_flight`` solutions are launched, ``slots`` of them run side by side (None: all). With ``refill`` a finished
    one is replaced at once (actors back to back); else launches wait for the next version, as in a run, and replace
    what has left flight."""

    in_flight: int
    slots: int | None = None
    refill: bool = False


def simulate(draw: Callable[[], Program[T]], policy: BatchPolicy, site: Site) -> Iterator[SimulatedBatch[T]]:
    """Batches without end. ``draw`` is asked at each launch, so an agent that changes between batches takes effect as
    it would in a run. Raises ValueError for a site that could never fill a batch of this policy."""
    if policy.name == "wait_all" and site.refill:
        raise ValueError("wait_all never ends where every finished solution is replaced")
    if policy.name.startswith("first_k") and not site.refill and site.in_flight < policy.size:
        raise ValueError(f"{site.in_flight} solutions never fill a batch of {policy.size}")
    return _Simulation(draw, policy, site).batches()


class _Simulation(Generic[T]):
    def __init__(self, draw: Callable[[], Program[T]], policy: BatchPolicy, site: Site) -> None:
        self.draw, self.policy, self.site = draw, policy, site
        self.now = self.opened_at = 0.0
        self.version = self.serial = 0
        self.waiting: deque[Flight[Program[T]]] = deque()
        self.running: list[tuple[float, int, Flight[Program[T]]]] = []  # a heap by end
        self.finished: list[Flight[Program[T]]] = []
        # What inclusion is computed from: of waves their own launches, else as many as have met their last cut.
        recent = (2 + (policy.drops_after or 0)) * policy.size + 4 * site.in_flight
        self.started: deque[Flight[Program[T]]] = deque(maxlen=recent if policy.name == "first_k_carry" else None)
        self.cuts: dict[int, float] = {}

    def batches(self) -> Iterator[SimulatedBatch[T]]:
        self._launch(self.site.in_flight)
        while True:
            self._next_event()
            pending = len(self.waiting) + len(self.running)
            oldest = self._oldest_pending() if self.policy.on_stale == "wait" else None
            cut = decide(self.policy, self.finished, pending, self.version, self.now, self.opened_at, oldest)
            if cut is None:
                continue
            self.now = cut.at
            self.cuts[self.version] = self.now
            yield self._batch(cut)
            used = {id(flight) for flight in (*cut.admitted, *cut.dropped)}
            self.finished = [flight for flight in self.finished if id(flight) not in used]
            self.version += 1
            self.opened_at = self.now
            if cut.kills:
                self.waiting.clear()
                self.running.clear()
            if self.policy.name != "first_k_carry":
                self.started.clear()
            if self.policy.name != "first_k_carry" or not self.site.refill:
                self._launch(self.site.in_flight - len(self.waiting) - len(self.running) - len(self.finished))

    def _oldest_pending(self) -> int | None:
        versions = [flight.version for flight in self.waiting] + [flight.version for _, _, flight in self.running]
        return min(versions, default=None)

    def _next_event(self) -> None:
        window_end = self.opened_at + self.policy.window_s
        if self.now < window_end and (not self.running or self.running[0][0] > window_end):
            self.now = window_end
            return
        self.now, _, flight = heapq.heappop(self.running)
        self.finished.append(flight)
        if self.site.refill:
            self._launch(1)
        else:
            self._start_what_fits()

    def _launch(self, count: int) -> None:
        for _ in range(count):
            self.waiting.append(Flight(self.draw(), self.version, None, None))
        self._start_what_fits()

    def _start_what_fits(self) -> None:
        while self.waiting and len(self.running) < (self.site.slots or self.site.in_flight):
            program, born = self.waiting[0].item, self.waiting.popleft().version
            end = self.now + program.duration_s
            flight = Flight(program, born, self.now, end)
            self.started.append(flight)
            self.serial += 1
            heapq.heappush(self.running, (end, self.serial, flight))

    def _batch(self, cut: Cut[Program[T]]) -> SimulatedBatch[T]:
        available = available_times(self.policy, [*self.started, *self.waiting], self.now, self.cuts)
        durations = [flight.item.duration_s for flight in cut.admitted]
        enough = len(available) >= min(self.policy.size, self.site.in_flight)
        return SimulatedBatch(
            at=self.now,
            programs=tuple(flight.item for flight in cut.admitted),
            staleness=tuple(self.version - flight.version for flight in cut.admitted),
            inclusion=tuple(inclusion_probabilities(durations, available) if enough else [1.0] * len(durations)),
        )


def weighted_share(batches: list[SimulatedBatch[T]], weights: list[list[float]], chosen: T) -> float:
    """Weighted share of ``chosen`` among the admitted programs of all batches; NaN when nothing was admitted."""
    total = sum(sum(w) for w in weights)
    chosen_sum = sum(
        w
        for batch, row in zip(batches, weights, strict=True)
        for p, w in zip(batch.programs, row, strict=True)
        if p.item == chosen
    )
    return chosen_sum / total if total else math.nan
