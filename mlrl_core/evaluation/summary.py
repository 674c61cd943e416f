"""What an evaluation's rows say, and how two of them compare. Pure functions of experience rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import polars as pl

from mlrl_core.evaluation.directory import SOLVE_WAVE
from mlrl_core.records import EXCLUDED_OUTCOMES

Row = dict[str, Any]
BEST_OF = 16  # executions, where versions are compared by the best they find

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
    best_of: float | None  # expected reward of the best of BEST_OF, see expected_best


@dataclass(frozen=True, slots=True)
class Summary:
    """One version on one competition, or on all (None). ``improve`` is of those that had a solution to improve;
    ``better`` has per solve prompt the better of solution and improvement, chosen by the score that rewards see and
    counted by the one they don't."""

    version: int
    competition_id: str | None
    solve: Attempt
    improve: Attempt | None
    better: Attempt | None
    best_id: str | None
    best_raw: float | None  # on the reported answers


def summarise(version: int, rows: pl.DataFrame, map_score: Callable[[str, float], float]) -> list[Summary]:
    """Of rows with COLUMNS: all of them, and where they are of several competitions each one's after that.
    ``map_score``: competition and raw score to a reward, higher is better.

    The reported score is the one on the answers that rewards never see, where there is one. Rows that the
    infrastructure lost count nowhere.
    """
    counted = [row for row in rows.sort("solution_id").iter_rows(named=True) if row["outcome"] not in EXCLUDED_OUTCOMES]
    names = sorted({str(row["competition_id"]) for row in counted})
    if len(names) < 2:
        return [_summary(version, names[0] if names else None, counted, map_score)]
    parts = [[row for row in counted if row["competition_id"] == name] for name in names]
    each = [_summary(version, name, part, map_score) for name, part in zip(names, parts, strict=True)]
    # Scores of different competitions have no best.
    return [replace(_summary(version, None, counted, map_score), best_id=None, best_raw=None), *each]


def _summary(
    version: int, competition_id: str | None, counted: Sequence[Row], map_score: Callable[[str, float], float]
) -> Summary:
    solved = [row for row in counted if row["prompt_kind"] == "solve" and row["wave"] == SOLVE_WAVE]
    improved = [row for row in counted if row["prompt_kind"] == "improve"]
    by_parent = {row["parent_id"]: row for row in improved}

    def chosen_by(row: Row) -> float:
        return map_score(row["competition_id"], row["score_raw"])

    def reported(row: Row) -> float:
        return map_score(row["competition_id"], _reported_raw(row))

    def better(row: Row) -> Row:
        other = by_parent.get(row["solution_id"])
        if other is None or not _is_valid(other):
            return row
        return max((row, other), key=chosen_by) if _is_valid(row) else other

    def attempt(those: Sequence[Row]) -> Attempt:
        valid = sorted((row for row in those if _is_valid(row)), key=chosen_by)
        rewards = [reported(row) for row in valid]
        return Attempt(
            solutions=len(those),
            valid=Mean.of([float(_is_valid(row)) for row in those]),
            reward=Mean.of(rewards),
            duration_s=Mean.of([row["execution_duration_s"] for row in valid]),
            best_of=expected_best(rewards, len(those)),
        )

    best = max((row for row in counted if _is_valid(row)), key=chosen_by, default=None)
    return Summary(
        version=version,
        competition_id=competition_id,
        solve=attempt(solved),
        improve=attempt(improved) if improved else None,
        better=attempt([better(row) for row in solved]) if improved else None,
        best_id=best["solution_id"] if best else None,
        best_raw=_reported_raw(best) if best else None,
    )


def expected_best(rewards: Sequence[float], count: int, best_of: int = BEST_OF) -> float | None:
    """Expected reward of the best of ``best_of`` solutions drawn without replacement from ``count``, of which the valid
    ones have ``rewards``, worst first; given that one of them is valid. Over all draws, so that it hangs on no single
    one. None where there are fewer solutions, or none valid."""
    failures = count - len(rewards)
    if count < best_of or not rewards:
        return None
    ways = [math.comb(failures + below, best_of - 1) for below in range(len(rewards))]
    return sum(way * reward for way, reward in zip(ways, rewards, strict=True)) / sum(ways)


def standard_errors(before: Mean | None, after: Mean | None) -> float | None:
    """By how many standard errors of the difference ``after`` is above ``before``; None where that is unknown."""
    if before is None or after is None or before.sem is None or after.sem is None:
        return None
    spread = math.hypot(before.sem, after.sem)
    return (after.mean - before.mean) / spread if spread else None


def metrics_of(summaries: Sequence[Summary]) -> dict[str, float]:
    """For tracking: ``eval/<kind>/<what>`` of the first, ``eval/<competition>/<kind>/<what>`` of the others."""
    found: dict[str, float] = {}
    for position, summary in enumerate(summaries):
        prefix = f"eval/{summary.competition_id}" if position else "eval"
        for kind, attempt in (("solve", summary.solve), ("improve", summary.improve), ("better", summary.better)):
            if attempt is None:
                continue
            found[f"{prefix}/{kind}/solutions"] = attempt.solutions
            for name, mean in (
                ("valid", attempt.valid),
                ("reward", attempt.reward),
                ("duration_s", attempt.duration_s),
            ):
                if mean is not None:
                    found[f"{prefix}/{kind}/{name}"] = mean.mean
            if attempt.best_of is not None:
                found[f"{prefix}/{kind}/best_of_{BEST_OF}"] = attempt.best_of
        if summary.best_raw is not None:
            found[f"{prefix}/best_raw"] = summary.best_raw
    return found


def _reported_raw(row: Row) -> float:
    return float(row["score_raw"] if row["score_report_raw"] is None else row["score_report_raw"])


def _is_valid(row: Row) -> bool:
    return bool(row["outcome"] == "graded")
