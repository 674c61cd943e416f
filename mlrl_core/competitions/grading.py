"""Grading a submission: read, check, pair, score. Never raises for anything a submission holds."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from mlrl_core.competitions.board import board_warnings, medal, percentile
from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.metrics import METRICS, MetricError
from mlrl_core.competitions.pairing import Pairs, pair
from mlrl_core.competitions.reader import CsvTable, ReadError, parse_csv
from mlrl_core.competitions.reasons import NO_SUBMISSION, InvalidSubmission
from mlrl_core.competitions.submission import read_submission, size_cap
from mlrl_core.errors import MlrlError
from mlrl_core.records import Score

SAMPLE_COPY = "sample_copy"
CONSTANT_PREDICTIONS = "constant_predictions"


@dataclass(frozen=True, slots=True)
class Grade:
    """All that grading finds out. ``raw`` is None when invalid; ``exists`` is MLE-bench's ``submission_exists``;
    ``detail`` says in words what ``reason`` means here and stays on the host."""

    raw: float | None
    exists: bool
    reason: str | None = None
    detail: str | None = None
    warnings: tuple[str, ...] = ()


def grade(competition: Competition, submission: Path) -> Score:
    """The ``Score`` of the file ``submission``, with percentile and medal where a board is known.

    An invalid submission is a Score with ``raw`` None and a reason of the fixed vocabulary. Raises MlrlError only
    when the competition itself is broken (its answers can't be read).
    """
    return to_score(competition, grade_file(competition, submission))


def to_score(competition: Competition, result: Grade) -> Score:
    """The record of a grade; ``percentile`` is the share of the board's teams beaten, ties half, 0 to 1."""
    board, lower = competition.board, competition.is_lower_better
    rank = earned = None
    warnings = (*result.warnings, *board_warnings(board, lower))
    if board is not None and result.raw is not None:
        rounded = round_score(result.raw)
        rank, earned = percentile(rounded, board, lower), medal(rounded, board.lines(), lower)
    return Score(
        raw=None if result.raw is None else float(result.raw),
        valid=result.raw is not None,
        is_lower_better=competition.is_lower_better,
        reason=result.reason,
        percentile=rank,
        medal=earned,
        warnings=warnings,
        versions=versions(),
    )


def grade_file(competition: Competition, submission: Path) -> Grade:
    """Like ``grade``, with everything the report needs."""
    answers = _trusted_table(competition.answers_path)
    try:
        data = read_submission(submission, size_cap(competition.sample_submission_path))
        table = parse_csv(data, max_rows=2 * answers.n_rows + 1000)
        pairs = pair(table, answers, competition.rules, competition.metric)
        raw = METRICS[competition.metric].function(pairs.truth, pairs.predicted)
    except InvalidSubmission as error:
        return Grade(None, error.reason not in NO_SUBMISSION, error.reason, error.detail)
    except (ReadError, MetricError) as error:
        return Grade(None, True, error.reason, error.detail)
    if not math.isfinite(raw):
        return Grade(None, True, "non_finite_score", f"the score is {raw}")
    return Grade(raw, True, warnings=_copy_warnings(competition, table, pairs))


def round_score(raw: float) -> float:
    """The score to five digits, as MLE-bench's report has it (a numpy float rounds by scaling, a Python one by its
    decimal expansion: near-ties differ)."""
    return float(round(raw, 5))


@cache
def versions() -> dict[str, str]:
    """Versions of what computes scores."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("mlrl")
    except PackageNotFoundError:
        own = "unknown"
    return {"mlrl": own, "numpy": np.__version__, "python": platform.python_version()}


def _copy_warnings(competition: Competition, table: CsvTable, pairs: Pairs) -> tuple[str, ...]:
    """Flags for submissions that took no modelling: a copy of the sample's values, or one value in every row."""
    found = []
    if len(pairs.predicted) > 1 and (pairs.predicted == pairs.predicted[0]).all():
        found.append(CONSTANT_PREDICTIONS)
    try:
        sample = _trusted_table(competition.sample_submission_path)
        names = list(competition.target_columns)
        if sample.n_rows == table.n_rows and all(
            np.array_equal(sample.column(name).values, table.column(name).values) for name in names
        ):
            found.append(SAMPLE_COPY)
    except (MlrlError, ValueError):
        pass  # without a readable sample nothing can be a copy of it
    return tuple(found)


_tables: dict[Path, tuple[tuple[int, int, int], CsvTable]] = {}


def _trusted_table(path: Path) -> CsvTable:
    """The table of a file of the competition itself, kept in memory while the file stays the same."""
    try:
        info = path.stat()
        stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
        kept = _tables.get(path)
        if kept is None or kept[0] != stamp:
            if len(_tables) >= 4:
                _tables.clear()
            _tables[path] = kept = (stamp, parse_csv(path.read_bytes()))
        return kept[1]
    except OSError as error:
        raise MlrlError(f"{path} can't be read ({error.strerror}): prepare the competition again") from None
    except ReadError as error:
        raise MlrlError(f"{path} is not a valid table ({error.detail}): prepare the competition again") from None
