"""Who could have been in a batch: inclusion probabilities from recorded starts and cuts (method.md 2.3).

A solution of duration d is used if and only if d is at most its available time C: from the start of its container to
the moment after which it would no longer be accepted. C is known for every launched solution, also for killed ones and
for those that never started (C <= 0), and hardly depends on its own duration. So the probability that a duration is
included is the share of launches with C >= d. No model of durations is needed.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

CLOCK_S = 1e-9  # a run that ends exactly at its cut is included, in spite of rounding


def inclusion_probabilities(durations_s: Sequence[float], available_s: Sequence[float]) -> list[float]:
    """For each duration the share of launches whose available time covers it.

    ``available_s`` is C of every launch measured against the same kind of cut, ``math.inf`` where nothing is ever cut.
    Probabilities are at least 1 / launches. Raises ValueError without launches.
    """
    if not available_s:
        raise ValueError("inclusion needs the launches of the batch")
    order = sorted(available_s)
    n = len(order)
    return [max((n - bisect.bisect_left(order, d - CLOCK_S)) / n, 1 / n) for d in durations_s]


@dataclass(frozen=True, slots=True)
class InclusionReport:
    """What to log beside the weights. ``unfinished_share_top_decile``: of the 10 % of launches with the most time, the
    share that was cut all the same; above a few per cent, long runs can't be admitted and no weight restores them."""

    min_p: float
    quintiles: tuple[float, ...]  # mean probability of admitted solutions, by duration, shortest first
    unfinished_share_top_decile: float

    @property
    def positive(self) -> bool:
        """Whether long runs can be admitted at all, so that weights can be right."""
        return self.unfinished_share_top_decile <= 0.05


def inclusion_report(
    durations_s: Sequence[float],
    probabilities: Sequence[float],
    available_s: Sequence[float],
    finished: Sequence[bool],
) -> InclusionReport:
    """``durations_s`` and ``probabilities`` of admitted solutions, ``available_s`` and ``finished`` of all launches."""
    ranked = [p for _, p in sorted(zip(durations_s, probabilities, strict=True))]
    edges = [round(i * len(ranked) / 5) for i in range(6)]
    parts = [ranked[low:high] for low, high in itertools.pairwise(edges)]
    launches = sorted(zip(available_s, finished, strict=True), key=lambda pair: pair[0], reverse=True)
    top = launches[: max(1, math.ceil(len(launches) / 10))]
    return InclusionReport(
        min_p=min(ranked, default=1.0),
        quintiles=tuple(sum(part) / len(part) if part else 1.0 for part in parts),
        unfinished_share_top_decile=sum(not done for _, done in top) / len(top) if top else 0.0,
    )
