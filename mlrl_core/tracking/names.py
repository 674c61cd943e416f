"""Every metric key, in one place: identical keys and units in every run, so that runs can be compared.

Keys are those of learner.md section 12 and method.md section 14. ``step`` is the policy version that the update made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlrl_core.config import RunConfig
from mlrl_core.config.environment import HacksConfig
from mlrl_core.experience.statistics import StepStatistics
from mlrl_core.instrumentation.milestones import VALUED
from mlrl_core.records import OUTCOMES

# Of one step: key -> attribute of StepStatistics.
WAVE_KEYS: dict[str, str] = {
    "reward/mean": "reward_mean",
    "reward/max": "reward_max",
    "reward/valid_mean": "valid_reward_mean",
    "reward/valid_sem": "valid_reward_sem",
    "outcome/valid_share": "valid_share",
    "exec/duration_s_mean": "duration_mean_s",
    "exec/duration_s_p50": "duration_p50_s",
    "exec/duration_s_p95": "duration_p95_s",
    "exec/duration_s_max": "duration_max_s",
    "exec/valid_duration_s_mean": "valid_duration_mean_s",
    "exec/queue_s_mean": "queue_mean_s",
    "response_length/mean": "response_length_mean",
    "response_length/max": "response_length_max",
    "response_length/clip_ratio": "clip_ratio",
    "response/no_plan_frac": "no_plan_share",
    "instrument/fallback_frac": "fallback_share",
    "milestones/mean": "milestones_mean",
    "improve/share": "improve_share",
    "improve/reward_mean": "improve_reward_mean",
    "improve/gain_mean": "improve_gain_mean",
    "improve/mended_frac": "improve_mended_share",
    "improve/win_rate": "improve_win_rate",
    "improve/best_of_two_mean": "improve_best_of_two_mean",
    "solve/reward_mean": "solve_reward_mean",
    "staleness/mean": "staleness_mean",
    "staleness/max": "staleness_max",
}
OUTCOME_KEYS: dict[str, str] = {
    outcome: "infra_error_frac" if outcome == "infra_error" else f"outcome/{outcome}_frac" for outcome in OUTCOMES
}
# Of each competition where a run has several, with the competition's id before the key.
COMPETITION_KEYS: dict[str, str] = {
    "reward/mean": "reward_mean",
    "reward/valid_mean": "valid_reward_mean",
    "outcome/valid_share": "valid_share",
    "score/best": "best_raw",
}
VALUE_KEYS: dict[str, str] = {label: f"milestones/{label.replace(' ', '_')}_mean" for label in sorted(VALUED)}
FLAG_KEYS: dict[str, str] = {flag: f"hacks/{flag}_frac" for flag in HacksConfig.model_fields}
BEST_KEY = "best_so_far"
BEST_REPORT_KEY = "best_so_far_report"  # the same solution on the report half (reward.report_split)
CUMULATIVE_KEYS = ("cum/exec_s", "cum/wall_s", "cum/solutions", "cum/generated_tokens")
NONFINITE_KEY = "tracking/nonfinite_values"

# Switches that are no single key of the configuration, under the names of method.md section 7.
_PRINTS = {"ast": "ast_prints", "lm_lines": "lm_prints", "lm_rewrite": "lm_prints", "none": "none"}


def ablation_params(config: RunConfig) -> dict[str, str]:
    """Parameters beside the configuration's own keys: what earns partial credit, and over how many competitions."""
    credit = config.reward.partial_credit
    return {
        "partial_credit": _PRINTS[config.instrument.inserter] if credit == "milestones" else credit,
        "scope": "multi_task" if config.competition.others else "per_task",
    }


# What the learner reports of one update.
LEARNER_KEYS: frozenset[str] = frozenset(
    {
        *(f"actor/{k}" for k in ("pg_loss", "pg_clipfrac", "pg_clipfrac_lower", "ppo_kl", "ref_kl", "entropy")),
        *(
            "actor/trained",
            "actor/grad_norm",
            "critic/grad_norm",
            "learner/steps",
            "learner/skipped_steps",
            "learner/kl_halvings",
        ),
        *("critic/vf_loss", "critic/vf_clipfrac", "critic/vf_explained_var", "critic/value_mean", "critic/return_mean"),
        *("advantage/std_before_whitening", "advantage/reward_spread", "sampling/abs_log_prob_diff"),
        *("mismatch_kl/mean", "mismatch_kl/max", "rollout_is_ess"),
        *(f"sampling/importance_ratio/{k}" for k in ("min", "mean", "max")),
        *("duration_weight/max", "duration_weight/ess"),
        *("learner/tokens", "learner/tokens_per_s", "learner/rss_gb", "learner/device_mem_gb"),
        *(f"timing_s/{k}" for k in ("logprobs", "values", "train", "publish", "push", "idle")),
        *("adapter/delta_norm", "adapter/push_fail", "generator/tok_s"),
    }
)


# What is found while a batch is weighed. With several competitions there is a rate for each, ``reward_rate/rho/<id>``.
BATCH_KEYS: frozenset[str] = frozenset(
    {
        *(f"inclusion/{k}" for k in ("q1", "q2", "q3", "q4", "q5", "min_p", "unfinished_share_top_decile")),
        *("duration_weight/floored_frac", "duration_weight/capped_frac"),
        *(f"batch/{k}" for k in ("size", "carried_frac", "unused", "in_flight")),
        "episode/return_mean",  # of both rewards, where a solution and its improvement are one episode
    }
)
RATE_PREFIX = "reward_rate/rho"


@dataclass(frozen=True, slots=True)
class Cumulative:
    """Totals of the run up to and with a step; comparisons are drawn against these as well as against steps."""

    exec_s: float
    wall_s: float
    solutions: int
    generated_tokens: int


def _is_known(key: str) -> bool:
    return key in LEARNER_KEYS or key in BATCH_KEYS or key.startswith(RATE_PREFIX)


def step_metrics(statistics: StepStatistics, measured: Mapping[str, float], cumulative: Cumulative) -> dict[str, float]:
    """All metrics of one step; ``measured`` by learner and batch.

    What is None, or not in this module, is left out; non-finite values are counted.
    """
    values: dict[str, float | None] = {key: getattr(statistics, name) for key, name in WAVE_KEYS.items()}
    values |= {key: statistics.outcome_share.get(outcome, 0.0) for outcome, key in OUTCOME_KEYS.items()}
    values |= {key: statistics.milestone_values.get(label) for label, key in VALUE_KEYS.items()}
    for name, part in statistics.competitions.items():
        values |= {f"{name}/{key}": getattr(part, attribute) for key, attribute in COMPETITION_KEYS.items()}
    values |= {key: statistics.flag_share.get(flag, 0.0) for flag, key in FLAG_KEYS.items()}
    values[BEST_KEY] = statistics.best.raw if statistics.best else None
    values[BEST_REPORT_KEY] = statistics.best.report_raw if statistics.best else None
    values |= {key: getattr(cumulative, key.removeprefix("cum/")) for key in CUMULATIVE_KEYS}
    values |= {key: value for key, value in measured.items() if _is_known(key)}
    present = {key: float(value) for key, value in values.items() if value is not None}
    finite = {key: value for key, value in present.items() if math.isfinite(value)}
    return {**finite, NONFINITE_KEY: float(len(present) - len(finite))}
