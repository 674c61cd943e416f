"""What an evaluation's rows say, and how two of them compare. Pure functions of experience rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import polars as pl

from mlrl_core.evaluation.directory import SOLVE_WAVE
from mlrl_core.records import EXCLUDED_OUTCOMES

COLUMNS = (
    *("solution_id", "wave", "competition_id", "parent_id", "prompt_kind", "outcome"),
    *("score_raw", "score_report_raw", "execution_duration_s"),
)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, its standard error (None below two values) and of how many values."""

    mean: float
    sem: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean | None:
        """None of nothing."""
        if not values:
            return None
        sem = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(fmean(values), sem, len(values))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One kind of answer: shares in [0, 1], rewards mapped from reported scores, seconds."""

    solutions: int
    valid: Mean | None
    reward: Mean | None  # of the valid ones
    duration_s: Mean | None  # of the valid ones


@dataclass(frozen=True, slots=True)
class Summary:
    """One version. ``improve`` is of those that had a solution to improve; ``better`` has per solve prompt the better
    of solution and improvement, chosen by the score that rewards see and counted by the one they don't."""

    version: int
    solve: Attempt
    improve: Attempt | None
    better: Attempt | None
    best_id: str | None
    best_raw: float | None  # on the reported answers


def summarise(version: int, rows: pl.DataFrame, map_score: Callable[[str, float], float]) -> Summary:
    """Of rows with COLUMNS. ``map_score``: competition and raw score to a reward, higher is better.

    The reported score is the one on the answers that rewards never see, where there is one. Rows that the
    infrastructure lost count nowhere.
    """
    counted = [row for row in rows.sort("solution_id").iter_rows(named=True) if row["outcome"] not in EXCLUDED_OUTCOMES]
    solved = [row for row in counted if row["prompt_kind"] == "solve" and row["wave"] == SOLVE_WAVE]
    improved = [row for row in counted if row["prompt_kind"] == "improve"]
    by_parent = {row["parent_id"]: row for row in improved}

    def chosen_by(row: dict[str, object]) -> float:
        return map_score(str(row["competition_id"]), float(row["score_raw"]))  # type: ignore[arg-type]

    def reported(row: dict[str, object]) -> float:
        raw = row["score_report_raw"] if row["score_report_raw"] is not None else row["score_raw"]
        return map_score(str(row["competition_id"]), float(raw))  # type: ignore[arg-type]

    def better(row: dict[str, object]) -> dict[str, object]:
        other = by_parent.get(row["solution_id"])
        if other is None or not _is_valid(other):
            return row
        return max((row, other), key=chosen_by) if _is_valid(row) else other

    def attempt(those: Sequence[dict[str, object]]) -> Attempt:
        valid = [row for row in those if _is_valid(row)]
        return Attempt(
            solutions=len(those),
            valid=Mean.of([float(_is_valid(row)) for row in those]),
            reward=Mean.of([reported(row) for row in valid]),
            duration_s=Mean.of([float(row["execution_duration_s"]) for row in valid]),  # type: ignore[arg-type]
        )

    best = max((row for row in counted if _is_valid(row)), key=chosen_by, default=None)
    best_raw = None
    if best is not None:
        best_raw = best["score_report_raw"] if best["score_report_raw"] is not None else best["score_raw"]
    return Summary(
        version=version,
        solve=attempt(solved),
        improve=attempt(improved) if improved else None,
        better=attempt([better(row) for row in solved]) if improved else None,
        best_id=best["solution_id"] if best else None,
        best_raw=best_raw,
    )


def standard_errors(before: Mean | None, after: Mean | None) -> float | None:
    """By how many standard errors of the difference ``after`` is above ``before``; None where that is unknown."""
    if before is None or after is None or before.sem is None or after.sem is None:
        return None
    spread = math.hypot(before.sem, after.sem)
    return (after.mean - before.mean) / spread if spread else None


def metrics_of(summary: Summary) -> dict[str, float]:
    """For tracking: ``eval/<kind>/<what>``."""
    found: dict[str, float] = {}
    for kind, attempt in (("solve", summary.solve), ("improve", summary.improve), ("better", summary.better)):
        if attempt is None:
            continue
        found[f"eval/{kind}/solutions"] = attempt.solutions
        for name, mean in (("valid", attempt.valid), ("reward", attempt.reward), ("duration_s", attempt.duration_s)):
            if mean is not None:
                found[f"eval/{kind}/{name}"] = mean.mean
    if summary.best_raw is not None:
        found["eval/best_raw"] = summary.best_raw
    return found


def _is_valid(row: dict[str, object]) -> bool:
    return row["outcome"] == "graded"
