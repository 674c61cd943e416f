"""Which completed solutions enter a batch, and what becomes of the rest (design section 5, method.md 2.4).

The rules are pure: a live run and the simulator ask the same ``decide`` whether a batch can be cut now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

BatchPolicyName = Literal["wait_all", "first_k_carry", "first_k_discard", "window"]

OnStale = Literal["wait", "drop"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """``size`` is k. ``max_staleness`` (first_k_carry) bounds how many versions before the one being trained a solution
    may have been launched, None sets no bound: ``on_stale`` drops what would pass it, or waits for it. ``window_s``
    counts from the first start of a wave's programs."""

    name: BatchPolicyName
    size: int
    max_staleness: int | None = None
    window_s: float = math.inf
    on_stale: OnStale = "drop"

    def __post_init__(self) -> None:
        if self.name == "window" and not math.isfinite(self.window_s):
            raise ValueError("batch policy window needs window_s")
        if self.max_staleness is not None and self.name != "first_k_carry":
            raise ValueError(f"max_staleness has no effect under batch policy {self.name}")

    @property
    def drops_after(self) -> int | None:
        """Versions after which a solution that is carried over can't be used any more; None: never."""
        return self.max_staleness if self.on_stale == "drop" else None

    @property
    def kills(self) -> bool:
        """Whether a cut ends all that is still running."""
        return self.name in ("first_k_discard", "window")

    @property
    def censors(self) -> bool:
        """Whether work can be thrown away because it takes long."""
        return self.kills or self.drops_after is not None


@dataclass(frozen=True, slots=True)
class Flight(Generic[T]):
    """One launched solution. Times share one clock; None = not yet. ``version`` is the policy's at dispatch."""

    item: T
    version: int
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """A batch. Nothing that ends after ``at`` could have been in it. ``dropped`` finished solutions are not used by any
    batch; where ``kills`` everything that is launched and hasn't finished is to be killed. The rest stays for later
    batches."""

    at: float
    admitted: tuple[Flight[T], ...]
    dropped: tuple[Flight[T], ...]
    kills: bool


def decide(
    policy: BatchPolicy,
    finished: Sequence[Flight[T]],
    pending: int,
    version: int,
    now: float,
    opened_at: float,
    oldest_pending: int | None = None,
) -> Cut[T] | None:
    """The batch that trains ``version``, or None while it can't be cut yet.

    ``finished`` in order of their ends and not in any batch yet, ``pending`` the number launched and not finished,
    ``oldest_pending`` the oldest version among these, ``opened_at`` the time at which a window opened. First come,
    first served; ``first_k_carry`` takes the stalest first when more than a batch has finished. Where nothing is
    pending, a batch is what there is.
    """
    if policy.name == "wait_all":
        return Cut(now, tuple(finished), (), False) if finished and not pending else None
    if policy.name == "window":
        closes = opened_at + policy.window_s
        if not pending and finished:
            return Cut(max(now, closes), tuple(finished), (), True)  # early: nobody else could come in
        # An update needs two solutions: until then the window stays open.
        return Cut(now, tuple(finished), (), True) if now >= closes and len(finished) > 1 else None
    if policy.name == "first_k_discard":
        taken = tuple(finished[: policy.size])
        if not taken or (len(taken) < policy.size and pending):
            return None
        return Cut(taken[-1].finished_at or now, taken, tuple(finished[policy.size :]), True)
    bound = math.inf if policy.max_staleness is None else policy.max_staleness
    if policy.on_stale == "wait" and oldest_pending is not None and version - oldest_pending >= bound:
        return None  # at the next cut it would be too old
    oldest = version - bound if policy.drops_after is not None else -math.inf
    usable = [flight for flight in finished if flight.version >= oldest]
    if not usable or (len(usable) < policy.size and pending):
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
    if not policy.censors:
        return [math.inf] * len(launches)
    out = []
    for flight in launches:
        end = cut_at
        if policy.drops_after is not None:
            last = flight.version + policy.drops_after
            if last not in cuts:
                continue
            end = cuts[last]
        out.append(-math.inf if flight.started_at is None else end - flight.started_at)
    return out


def biased_pair(policy: BatchPolicy, weighting: str) -> str | None:
    """What is wrong with this pair of batch policy and duration weighting, in one sentence; None for a matching one."""
    if weighting in ("mean_normalised", "clipped"):
        if policy.censors:
            return (
                f"{weighting} under {policy.name} is right only where its durations happen to match what the cut "
                "throws away; inverse_inclusion measures it"
            )
        return (
            f"{policy.name} admits every solution, so {weighting} counts slow ones more often than the policy chooses "
            "them; none is unbiased"
        )
    if weighting == "none" and policy.censors:
        return (
            f"{policy.name} throws away unfinished work, so slow solutions are too rare; inverse_inclusion corrects it"
        )
    if weighting == "inverse_inclusion" and not policy.censors:
        return f"{policy.name} throws nothing away, so inverse_inclusion equals none: say none"
    if weighting == "reward_rate" and policy.censors:
        return (
            f"reward_rate charges for time, but {policy.name} throws slow solutions away besides: under wait_all or "
            "first_k_carry the charge alone decides"
        )
    return None
