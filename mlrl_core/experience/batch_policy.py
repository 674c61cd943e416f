"""Which completed solutions enter a batch, and what becomes of the rest (design section 5, method.md 2.4).

The rules are pure: a live run and the simulator ask the same ``decide`` whether a batch can be cut now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

BatchPolicyName = Literal["wait_all", "first_k_carry", "first_k_discard", "window"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """``size`` is k. ``max_staleness`` (first_k_carry): solutions launched by more than so many versions before the one
    being trained are dropped; None waits for every one."""

    name: BatchPolicyName
    size: int
    max_staleness: int | None = None
    window_s: float = math.inf

    def __post_init__(self) -> None:
        if self.name == "window" and not math.isfinite(self.window_s):
            raise ValueError("batch policy window needs window_s")
        if self.max_staleness is not None and self.name != "first_k_carry":
            raise ValueError(f"max_staleness has no effect under batch policy {self.name}")


@dataclass(frozen=True, slots=True)
class Flight(Generic[T]):
    """One launched solution. Times share one clock; None = not yet. ``version`` is the policy's at dispatch."""

    item: T
    version: int
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """A batch. ``dropped`` finished solutions are not used by any batch; where ``kills`` everything that is launched
    and hasn't finished is to be killed. The rest stays for later batches."""

    at: float
    admitted: tuple[Flight[T], ...]
    dropped: tuple[Flight[T], ...]
    kills: bool


def decide(
    policy: BatchPolicy, finished: Sequence[Flight[T]], pending: int, version: int, now: float, opened_at: float
) -> Cut[T] | None:
    """The batch that trains ``version``, or None while it can't be cut yet.

    ``finished`` in order of their ends and not in any batch yet, ``pending`` the number launched and not finished,
    ``opened_at`` the time of the previous cut. First come, first served; ``first_k_carry`` takes the stalest first when
    more than a batch has finished.
    """
    if policy.name == "wait_all":
        return Cut(now, tuple(finished), (), False) if finished and not pending else None
    if policy.name == "window":
        return Cut(now, tuple(finished), (), True) if now >= opened_at + policy.window_s else None
    if len(finished) < policy.size:
        return None
    if policy.name == "first_k_discard":
        return Cut(now, tuple(finished[: policy.size]), tuple(finished[policy.size :]), True)
    oldest = -1 if policy.max_staleness is None else version - policy.max_staleness
    usable = [flight for flight in finished if flight.version >= oldest]
    if len(usable) < policy.size:
        return None
    usable.sort(key=lambda flight: flight.version)  # stable: by end among equals
    stale = tuple(flight for flight in finished if flight.version < oldest)
    return Cut(now, tuple(usable[: policy.size]), stale, False)


def available_times(
    policy: BatchPolicy, launches: Sequence[Flight[T]], cut_at: float, cuts: Mapping[int, float]
) -> list[float]:
    """C of every launch (seconds): from its start to the last moment at which it would have been accepted.

    ``cuts`` maps a version to the time at which its batch was cut. Launches of ``first_k_carry`` whose last possible
    cut still lies ahead are left out: their C is not known yet. A launch that never started has C = -inf.
    """
    if policy.name == "wait_all" or (policy.name == "first_k_carry" and policy.max_staleness is None):
        return [math.inf] * len(launches)
    out = []
    for flight in launches:
        end = cut_at
        if policy.max_staleness is not None:
            last = flight.version + policy.max_staleness
            if last not in cuts:
                continue
            end = cuts[last]
        out.append(-math.inf if flight.started_at is None else end - flight.started_at)
    return out


def biased_pair(policy: BatchPolicy, weighting: str) -> str | None:
    """What is wrong with this pair of batch policy and duration weighting, in one sentence; None for a matching one."""
    censors = policy.name in ("first_k_discard", "window") or policy.max_staleness is not None
    if weighting in ("mean_normalised", "clipped"):
        if censors:
            return (
                f"{weighting} under {policy.name} is right only where its durations happen to match what the cut "
                "throws away; inverse_inclusion measures it"
            )
        return (
            f"{policy.name} admits every solution, so {weighting} counts slow ones more often than the policy chooses "
            "them; none is unbiased"
        )
    if weighting == "none" and censors:
        return (
            f"{policy.name} throws away unfinished work, so slow solutions are too rare; inverse_inclusion corrects it"
        )
    if weighting == "inverse_inclusion" and not censors:
        return f"{policy.name} throws nothing away, so inverse_inclusion equals none: say none"
    return None
