"""The reward of a solution (method.md section 4): one pure function, always finite.

Any graded program earns more than any failed one: failures end at ``failure + 7 credits``, graded ones start at
``valid_floor``, and the configuration refuses values that would let the two meet.
"""

from __future__ import annotations

import math

from mlrl_core.config.environment import RewardConfig
from mlrl_core.records import EXCLUDED_OUTCOMES, Execution, Outcome, Reward, Score

_STATUS_OUTCOME: dict[str, Outcome] = {
    "error": "error",
    "oom": "oom",
    "timeout": "timeout",
    "output_limit": "output_limit",
    "cancelled": "cancelled",
    "infra_error": "infra_error",
}


def outcome_of(execution: Execution | None, score: Score | None) -> Outcome:
    """The one outcome of a solution. No execution means that there was no code to run.

    A submission beside any status but ``ok`` is never graded: a crash after writing is a failure.
    """
    if execution is None:
        return "no_code"
    if execution.status != "ok":
        return _STATUS_OUTCOME[execution.status]
    if execution.submission_state == "missing":
        return "no_submission"
    if execution.submission_state != "ok" or score is None or not score.valid:
        return "invalid_submission"
    return "graded"


def reward_of(
    outcome: Outcome, mapped_score: float | None, milestones_seen: int, config: RewardConfig
) -> Reward | None:
    """The terminal reward, or None for outcomes that are no statement about the policy.

    ``mapped_score`` is the score after ``reward_map`` (higher is better), needed for ``graded`` only. Credit for
    milestones goes to failures only: a valid score is its own reward.
    """
    if outcome in EXCLUDED_OUTCOMES:
        return None
    if outcome != "graded":
        credit = config.milestone_credit * milestones_seen
        return Reward(config.failure + credit, outcome, None, credit)
    if mapped_score is None or not math.isfinite(mapped_score):
        raise ValueError(f"a graded solution needs a finite mapped score, not {mapped_score}")
    return Reward(max(mapped_score, config.valid_floor), outcome, mapped_score, 0.0)
