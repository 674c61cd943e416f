"""The reward of a solution (method.md section 4): one pure function, always finite.

Any graded program earns more than any failed one: failures end at ``failure + 7 credits``, graded ones start at
``valid_floor``, and the configuration refuses values that would let the two meet. The one exception is a detected
hack that the configuration penalises.
"""

from __future__ import annotations

import math

from mlrl_core.config.environment import MAX_MILESTONES, HackAction, RewardConfig
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


def partial_credit(milestones_seen: int, line_share: float, config: RewardConfig) -> float:
    """What a program earns for how far it came, from 0 to ``MAX_MILESTONES`` milestone credits.

    ``line_share`` is the exception's line by the number of lines (``feedback.line_share``), in [0, 1].
    """
    whole = MAX_MILESTONES * config.milestone_credit
    if config.partial_credit == "milestones":
        return min(config.milestone_credit * milestones_seen, whole)
    if config.partial_credit == "error_line":
        return whole * min(max(0.0, line_share), 1.0)
    return 0.0


def reward_of(
    outcome: Outcome,
    mapped_score: float | None,
    milestones_seen: int,
    config: RewardConfig,
    line_share: float = 0.0,
    action: HackAction = "flag",
) -> Reward | None:
    """The terminal reward, or None for outcomes that are no statement about the policy.

    ``mapped_score`` is the score after ``reward_map`` (higher is better), needed for ``graded`` only. ``action`` is
    what a detected hack costs a graded program: nothing, all that is above the floor, or as much as a failure (only
    then does a graded program not earn more than a failed one).
    """
    if outcome in EXCLUDED_OUTCOMES:
        return None
    credit = partial_credit(milestones_seen, line_share, config)
    if outcome != "graded":
        return Reward(config.failure + credit, outcome, None, credit)
    if mapped_score is None or not math.isfinite(mapped_score):
        raise ValueError(f"a graded solution needs a finite mapped score, not {mapped_score}")
    if action == "penalty":
        return Reward(config.failure, outcome, mapped_score, 0.0)
    if action == "valid_floor":
        return Reward(config.valid_floor, outcome, mapped_score, 0.0)
    credit = credit if config.credit_on_valid else 0.0
    return Reward(max(mapped_score, config.valid_floor) + credit, outcome, mapped_score, credit)


def charged_duration_s(outcome: Outcome, duration_s: float, limit_s: float, config: RewardConfig) -> float:
    """The duration in seconds that the duration weights go by: a failure may be charged the whole time limit, so that
    failing fast is no way to a high reward rate (arXiv 2609.36393)."""
    failed = outcome != "graded" and outcome not in EXCLUDED_OUTCOMES
    return limit_s if failed and config.failure_charge == "limit" else duration_s
