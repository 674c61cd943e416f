"""Grading a submission: read, check, pair, score. Never raises for anything a submission holds."""

from __future__ import annotations

import math
import platform
from functools import cache
from pathlib import Path

import numpy as np

from mlrl_core.competitions.board import Board, board_warnings, medal, percentile
from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.metrics import METRICS, MetricError
from mlrl_core.competitions.outside import grade_outside, is_outside
from mlrl_core.competitions.pairing import Pairs, pair
from mlrl_core.competitions.parts import TOO_SMALL, Part, part_mask
from mlrl_core.competitions.reader import CsvTable, ReadError, parse_csv
from mlrl_core.competitions.reasons import NO_SUBMISSION, InvalidSubmission
from mlrl_core.competitions.result import Grade
from mlrl_core.competitions.submission import read_submission, size_cap
from mlrl_core.errors import MlrlError
from mlrl_core.records import Score

SAMPLE_COPY = "sample_copy"
CONSTANT_PREDICTIONS = "constant_predictions"
OUTSIDE_DEADLINE_S = 300.0


def grade(competition: Competition, submission: Path, part: Part = "all") -> Score:
    """The ``Score`` of the file ``submission``, with percentile and medal where a board is known.

    ``part``: score on all answers, or on one of the two halves of ``parts`` (the whole file is still checked). An
    invalid submission is a Score with ``raw`` None and a reason of the fixed vocabulary. Raises MlrlError when the
    competition itself is broken (its answers can't be read), InfraError when its own grader is.
    """
    return to_score(competition, grade_file(competition, submission, part))


def to_score(competition: Competition, result: Grade) -> Score:
    """The record of a grade.

    ``percentile`` is the share of the board's teams beaten, ties half, 0 to 1; a competition without a board is ranked
    among its measured baselines.
    """
    board, lower = competition.board, competition.is_lower_better
    rank = earned = None
    if result.raw is not None:
        rounded = round_score(result.raw)
        rivals = board or Board(tuple(baseline.score for baseline in competition.baselines.values()))
        rank = percentile(rounded, rivals, lower) if rivals.ranked else None
        earned = medal(rounded, board.lines(), lower) if board else None
    return Score(
        raw=None if result.raw is None else float(result.raw),
        valid=result.raw is not None,
        is_lower_better=lower,
        reason=result.reason,
        percentile=rank,
        medal=earned,
        warnings=all_warnings(competition, result),
        versions=versions(),
    )


def all_warnings(competition: Competition, result: Grade) -> tuple[str, ...]:
    """Warnings of the submission, of the competition and of its board."""
    return (*result.warnings, *competition.warnings, *board_warnings(competition.board, competition.is_lower_better))


def grade_file(
    competition: Competition, submission: Path, part: Part = "all", deadline_s: float = OUTSIDE_DEADLINE_S
) -> Grade:
    """Like ``grade``, with everything the report needs. ``deadline_s`` limits a grader that is not ours."""
    if is_outside(competition):
        if part != "all":
            raise MlrlError(f"'{competition.id}' has its own grader: its answers can't be split, use the whole")
        return grade_outside(competition, submission, deadline_s)
    answers = _trusted_table(competition.answers_path)
    try:
        data = read_submission(submission, size_cap(competition.sample_submission_path))
        table = parse_csv(data, max_rows=2 * answers.n_rows + 1000)
        pairs = pair(table, answers, competition.rules, competition.metric)
        warnings = _copy_warnings(competition, table, pairs)
        if part != "all":
            mask = part_mask(pairs.truth, pairs.answer_rows, competition.id, part)
            warnings += (TOO_SMALL,) if mask.all() else ()
            pairs = Pairs(pairs.truth[mask], pairs.predicted[mask], pairs.answer_rows[mask])
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            raw = METRICS[competition.metric].function(pairs.truth, pairs.predicted)
    except InvalidSubmission as error:
        return Grade(None, error.reason not in NO_SUBMISSION, error.reason, error.detail)
    except (ReadError, MetricError) as error:
        return Grade(None, True, error.reason, error.detail)
    if not math.isfinite(raw):
        return Grade(None, True, "non_finite_score", f"the score is {raw}")
    return Grade(raw, True, warnings=warnings)


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
