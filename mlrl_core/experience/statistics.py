"""What one step did, computed from experience rows alone: the display, MLflow and the report show the same numbers.

``infra_error`` and ``cancelled`` rows are counted and left out of everything else. Infinite or missing raw scores
never reach a mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from mlrl_core.experience.store import ExperienceStore
from mlrl_core.records import EXCLUDED_OUTCOMES, OUTCOMES

COLUMNS = (
    "solution_id",
    "wave",
    "policy_version",
    "outcome",
    "code",
    "finish_reason",
    "response_ids",
    "generation_s",
    "program_fallback_reason",
    "execution_duration_s",
    "execution_queue_s",
    "execution_milestones",
    "score_raw",
    "score_is_lower_better",
    "reward_total",
    "prompt_kind",
    "parent_id",
    "parent_reward",
    "flags",
    "score_report_raw",
    "execution_milestone_values",
    "competition_id",
    "plan",
)


@dataclass(frozen=True, slots=True)
class Best:
    """The best valid solution so far; ``raw`` is the competition's own metric."""

    solution_id: str
    raw: float
    reward: float
    report_raw: float | None = None  # on the half of the answers that rewards never see


@dataclass(frozen=True, slots=True)
class CompetitionStatistics:
    """One competition's part of a wave of several."""

    reward_mean: float | None
    valid_reward_mean: float | None
    valid_share: float
    best_raw: float | None  # of this wave


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Numbers of one step. Shares are of the counted rows (not ``infra_error``, not ``cancelled``) in [0, 1];
    a mean over nothing is None. Durations are seconds of the program's own run time, of every counted program that
    was run; ``valid_*`` are over graded solutions only."""

    step: int
    rows: int
    counted: int
    outcome_share: dict[str, float]  # of all rows, so that they add up to 1
    valid_share: float
    reward_mean: float | None
    reward_max: float | None
    valid_reward_mean: float | None
    valid_reward_sem: float | None  # standard error; None below two valid solutions
    duration_mean_s: float | None
    duration_p50_s: float | None
    duration_p95_s: float | None
    duration_max_s: float | None
    valid_duration_mean_s: float | None
    queue_mean_s: float | None
    execution_s: float  # sum
    generated_tokens: int
    response_length_mean: float | None
    response_length_max: int
    clip_ratio: float  # share that hit the token limit
    no_plan_share: float  # responses without a plan before the program
    milestones_mean: float | None
    fallback_share: float  # of programs that were instrumented
    staleness_mean: float | None
    staleness_max: int
    best: Best | None  # up to and with this step
    milestone_values: dict[str, float]  # mean of each number that programs printed
    competitions: dict[str, CompetitionStatistics]  # by id; empty unless there are several
    flag_share: dict[str, float]  # suspected hacks, of counted rows
    improve_share: float  # of counted rows
    improve_reward_mean: float | None
    solve_reward_mean: float | None
    improve_gain_mean: float | None  # reward above the parent's, of graded improvements of graded solutions
    improve_mended_share: float | None  # of improvements of failed solutions (episode = two_step): those graded
    improve_win_rate: float | None  # share of improve rows that earned more than their parent
    improve_best_of_two_mean: float | None  # the better of an improvement and its parent


def step_statistics(rows: pl.DataFrame, step: int, best_before: Best | None = None) -> StepStatistics:
    """Statistics of the rows (``COLUMNS``) that left flight at ``step``: its batch, and what no batch uses."""
    counted = rows.filter(~pl.col("outcome").is_in(list(EXCLUDED_OUTCOMES)))
    valid = counted.filter(pl.col("outcome") == "graded")
    run = counted.filter(pl.col("execution_duration_s").is_not_null())["execution_duration_s"]
    lengths = counted["response_ids"].list.len()
    milestones = counted["execution_milestones"].list.len().fill_null(0)
    staleness = step - 1 - counted["policy_version"]
    programs = counted.filter(pl.col("execution_duration_s").is_not_null())
    fallbacks = programs.filter(pl.col("program_fallback_reason").is_not_null()).height
    shares = dict(rows["outcome"].value_counts().iter_rows())
    spread = valid["reward_total"].std()
    improved = counted.filter(pl.col("prompt_kind") == "improve")
    gains = improved["reward_total"] - improved["parent_reward"]
    # A solution of an earlier wave that is improved was graded; one of the same episode is among these rows.
    failed = rows.filter(pl.col("outcome") != "graded")["solution_id"].to_list()
    mending = improved["parent_id"].is_in(failed).fill_null(False)
    graded = improved["outcome"] == "graded"
    return StepStatistics(
        step=step,
        rows=rows.height,
        counted=counted.height,
        outcome_share={outcome: shares.get(outcome, 0) / max(rows.height, 1) for outcome in OUTCOMES},
        valid_share=valid.height / max(counted.height, 1),
        reward_mean=_number(counted["reward_total"].mean()),
        reward_max=_number(counted["reward_total"].max()),
        valid_reward_mean=_number(valid["reward_total"].mean()),
        valid_reward_sem=None if spread is None else float(spread) / math.sqrt(valid.height),  # type: ignore[arg-type]
        duration_mean_s=_number(run.mean()),
        duration_p50_s=_number(run.median()),
        duration_p95_s=_number(run.quantile(0.95, interpolation="linear")),
        duration_max_s=_number(run.max()),
        valid_duration_mean_s=_number(valid["execution_duration_s"].mean()),
        queue_mean_s=_number(programs["execution_queue_s"].mean()),
        execution_s=float(rows["execution_duration_s"].sum()),
        generated_tokens=int(rows["response_ids"].list.len().sum()),
        response_length_mean=_number(lengths.mean()),
        response_length_max=int(_number(lengths.max()) or 0),
        clip_ratio=counted.filter(pl.col("finish_reason") == "length").height / max(counted.height, 1),
        no_plan_share=counted.filter(pl.col("plan") == "").height / max(counted.height, 1),
        milestones_mean=_number(milestones.mean()),
        fallback_share=fallbacks / max(programs.height, 1),
        staleness_mean=_number(staleness.mean()),
        staleness_max=int(_number(staleness.max()) or 0),
        best=_best(valid, best_before),
        milestone_values=_milestone_values(counted["execution_milestone_values"].drop_nulls()),
        competitions=_by_competition(counted),
        flag_share={
            flag: number / counted.height
            for flag, number in counted["flags"].explode().drop_nulls().value_counts().iter_rows()
        },
        improve_share=improved.height / max(counted.height, 1),
        improve_reward_mean=_number(improved["reward_total"].mean()),
        solve_reward_mean=_number(counted.filter(pl.col("prompt_kind") == "solve")["reward_total"].mean()),
        improve_gain_mean=_number(gains.filter(graded & ~mending).mean()),
        improve_mended_share=_number(graded.filter(mending).mean()),
        improve_win_rate=_number((gains > 0).mean()),
        improve_best_of_two_mean=_number((improved["parent_reward"] + gains.clip(lower_bound=0)).mean()),
    )


def run_statistics(store: ExperienceStore, steps: Iterable[int] | None = None) -> list[StepStatistics]:
    """Statistics of every step of a run in order, with the best so far carried along."""
    found: list[StepStatistics] = []
    best: Best | None = None
    for number in store.steps() if steps is None else steps:
        step = step_statistics(store.step_frame(number, COLUMNS), number, best)
        best = step.best
        found.append(step)
    return found


def _milestone_values(encoded: pl.Series) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for text in encoded:
        for label, value in json.loads(text).items():
            found.setdefault(label, []).append(value)
    return {label: sum(values) / len(values) for label, values in found.items()}


def _by_competition(counted: pl.DataFrame) -> dict[str, CompetitionStatistics]:
    parts = {str(rows["competition_id"][0]): rows for rows in counted.partition_by("competition_id")}
    if len(parts) < 2:
        return {}
    valid = {name: rows.filter(pl.col("outcome") == "graded") for name, rows in parts.items()}
    bests = {name: _best(rows, None) for name, rows in valid.items()}
    return {
        name: CompetitionStatistics(
            reward_mean=_number(rows["reward_total"].mean()),
            valid_reward_mean=_number(valid[name]["reward_total"].mean()),
            valid_share=valid[name].height / rows.height,
            best_raw=best.raw if (best := bests[name]) else None,
        )
        for name, rows in sorted(parts.items())
    }


def _best(valid: pl.DataFrame, before: Best | None) -> Best | None:
    # By the raw score: a reward may be capped, and two programs then look alike. The earlier one keeps a tie.
    valid = valid.filter(pl.col("score_raw").is_not_null())
    if valid.is_empty():
        return before
    if valid["competition_id"].n_unique() > 1:  # raw scores of several competitions say nothing of each other
        top = valid.sort(["reward_total", "solution_id"], descending=[True, False]).row(0, named=True)
        new = Best(top["solution_id"], top["score_raw"], top["reward_total"], top["score_report_raw"])
        return new if before is None or new.reward > before.reward else before
    lower = bool(valid["score_is_lower_better"][0])
    top = valid.sort(["score_raw", "solution_id"], descending=[not lower, False]).row(0, named=True)
    new = Best(top["solution_id"], top["score_raw"], top["reward_total"], top["score_report_raw"])
    if before is None or (new.raw < before.raw if lower else new.raw > before.raw):
        return new
    return before


def _number(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type]
