"""Duration weights: one number per solution that multiplies its advantage after whitening (method.md 2.2).

They are computed over the whole batch of solutions, `infra_error` and cancelled ones already removed, before anything
is split between ranks. With several competitions in a batch the mean is taken per competition: otherwise the slow
competitions would dominate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

DurationWeighting = Literal["none", "mean_normalised", "clipped", "inverse_inclusion", "reward_rate"]


def duration_weights(
    durations_s: Sequence[float],
    weighting: DurationWeighting,
    floor_s: float,
    competition_ids: Sequence[str] | None = None,
    *,
    cap: float | None = None,
    inclusion: Sequence[float] | None = None,
) -> list[float]:
    """The weight of each solution, in the order of ``durations_s`` (seconds, one per solution of the batch).

    - ``none``, ``reward_rate``: 1 (the latter charges the reward for time instead, see reward_rate.py).
    - ``mean_normalised``: the duration, at least ``floor_s``, over the mean of that; the floor keeps programs that fail
      at once teachable.
    - ``clipped``: the same, at most ``cap``, not renormalised.
    - ``inverse_inclusion``: 1 over the probability of being included (``inclusion``, see inclusion.py), over its mean,
      at most ``cap``. Durations and floor play no part.

    Raises ValueError when lengths differ or a weighting lacks what it needs.
    """
    ids = list(competition_ids) if competition_ids is not None else [""] * len(durations_s)
    if len(ids) != len(durations_s):
        raise ValueError(f"{len(durations_s)} durations but {len(ids)} competition ids")
    if weighting in ("none", "reward_rate"):
        return [1.0] * len(ids)
    if weighting in ("clipped", "inverse_inclusion") and cap is None:
        raise ValueError(f"{weighting} needs a cap")
    if weighting == "inverse_inclusion":
        if inclusion is None or len(inclusion) != len(ids):
            raise ValueError("inverse_inclusion needs an inclusion probability for each solution")
        raw = [1 / p for p in inclusion]
    else:
        raw = [max(float(d), floor_s) for d in durations_s]
    weights = _over_the_mean(raw, ids)
    return weights if cap is None or weighting == "mean_normalised" else [min(w, cap) for w in weights]


def _over_the_mean(raw: Sequence[float], ids: Sequence[str]) -> list[float]:
    weights = [1.0] * len(ids)
    for competition in set(ids):
        members = [i for i, other in enumerate(ids) if other == competition]
        mean = sum(raw[i] for i in members) / len(members)
        for i in members:
            weights[i] = raw[i] / mean if mean > 0 else 1.0
    return weights


def effective_sample_share(weights: Sequence[float]) -> float:
    """Effective sample size over batch size, ``(sum w)^2 / (n sum w^2)``: 1 for equal weights, 1/n when one counts
    alone, 0 for no weights."""
    squares = sum(w * w for w in weights)
    return sum(weights) ** 2 / (len(weights) * squares) if squares > 0 else 0.0
