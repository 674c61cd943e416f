"""The report of one graded submission: MLE-bench's keys, in its order, and three of our own."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlrl_core.competitions.board import above_median, medal
from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.grading import all_warnings, grade_file, round_score, versions
from mlrl_core.competitions.result import Grade


def grade_report(competition: Competition, submission: Path) -> dict[str, Any]:
    """Grade ``submission`` in this process and report it (see ``report``)."""
    return report(competition, submission, grade_file(competition, submission))


def report(competition: Competition, submission: Path, result: Grade) -> dict[str, Any]:
    """MLE-bench's report as a JSON-ready mapping, plus ``reason`` (null when valid), ``warnings`` and ``versions``.

    Without a board the lines and the medal fields are null. Nothing in it is NaN or infinite.
    """
    lower = competition.is_lower_better
    score = None if result.raw is None else round_score(result.raw)
    board = competition.board
    lines = board.lines() if board else None
    earned = medal(score, lines, lower) if lines and score is not None else None

    def flag(value: bool) -> bool | None:
        return value if lines else None

    return {
        "competition_id": competition.id,
        "score": score,
        "gold_threshold": _finite(lines.gold) if lines else None,
        "silver_threshold": _finite(lines.silver) if lines else None,
        "bronze_threshold": _finite(lines.bronze) if lines else None,
        "median_threshold": _finite(lines.median) if lines else None,
        "any_medal": flag(earned is not None),
        "gold_medal": flag(earned == "gold"),
        "silver_medal": flag(earned == "silver"),
        "bronze_medal": flag(earned == "bronze"),
        "above_median": flag(bool(lines and score is not None and above_median(score, lines, lower))),
        "submission_exists": result.exists,
        "valid_submission": score is not None,
        "is_lower_better": lower,
        "created_at": datetime.now(UTC).isoformat(),
        "submission_path": str(submission),
        "reason": None if result.reason is None else f"{result.reason}: {result.detail}",
        "warnings": list(all_warnings(competition, result)),
        "versions": versions(),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
