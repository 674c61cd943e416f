"""Leaderboards: reading one, medal lines, percentile and HumanRank (grading rules sections 4 and 10).

A board is a CSV of which only the column ``score`` is read, rows in rank order, best first. It is never sorted or
recomputed: medal lines are rows by position in the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from mlrl_core.errors import MlrlError

Medal = Literal["gold", "silver", "bronze"]
BOARD_DIRECTION = "board_direction"
_LFS_PREFIX = b"version https://git-lfs"


class BoardError(MlrlError):
    """The board file can't be used. A fault of the set-up, never of a submission."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Scores that earn a medal, and the median (NaN where the board has NaN in that place)."""

    gold: float
    silver: float
    bronze: float
    median: float


@dataclass(frozen=True, slots=True)
class Board:
    """Scores of all teams in file order; NaN where a team has none."""

    scores: tuple[float, ...]

    @property
    def ranked(self) -> tuple[float, ...]:
        """The scores without NaN."""
        return tuple(score for score in self.scores if not math.isnan(score))

    def lines(self) -> Lines:
        """Medal lines by MLE-bench's table (Kaggle's progression rules) and the median."""
        gold, silver, bronze = (self.scores[position - 1] for position in medal_positions(len(self.scores)))
        return Lines(gold, silver, bronze, median(self.ranked) if self.ranked else math.nan)

    def contradicts(self, is_lower_better: bool) -> bool:
        """True when the rows are not in order for that direction, or can't tell (one row, all equal, NaN at an end)."""
        first, last = self.scores[0], self.scores[-1]
        if not (first < last if is_lower_better else first > last):
            return True
        scores = self.ranked
        return any(a > b if is_lower_better else a < b for a, b in pairwise(scores))


def board_warnings(board: Board | None, is_lower_better: bool) -> tuple[str, ...]:
    """``board_direction`` when the board's order does not show the competition's own direction."""
    return (BOARD_DIRECTION,) if board is not None and board.contradicts(is_lower_better) else ()


def medal_positions(teams: int) -> tuple[int, int, int]:
    """Positions (from 1) of the last gold, silver and bronze among ``teams``."""
    if teams < 100:
        return max(1, teams // 10), max(1, teams // 5), max(1, teams * 2 // 5)
    if teams < 250:
        return 10, teams // 5, teams * 2 // 5
    if teams < 1000:
        return 10 + teams // 500, 50, 100
    return 10 + teams // 500, teams // 20, teams // 10


def read_board(path: Path) -> Board:
    """The board in ``path``. Raises BoardError that names the file and its fault."""
    from mlrl_core.competitions.reader import ReadError, parse_csv

    try:
        data = path.read_bytes()
    except OSError as error:
        raise BoardError(f"{path}: the leaderboard can't be read ({error.strerror})") from None
    if data.startswith(_LFS_PREFIX):
        raise BoardError(f"{path} is a Git LFS pointer, not a leaderboard: run 'git lfs pull' in that checkout")
    try:
        table = parse_csv(data)
    except ReadError as error:
        raise BoardError(f"{path}: not a valid leaderboard ({error.detail})") from None
    if "score" not in table.header:
        raise BoardError(f"{path}: the leaderboard has no column 'score' (columns: {', '.join(table.header[:6])})")
    if table.n_rows == 0:
        raise BoardError(f"{path}: the leaderboard has no rows")
    column = table.column("score")
    if column.kind not in ("int", "float"):
        raise BoardError(f"{path}: the leaderboard's column 'score' holds something that is not a number")
    scores = tuple(column.floats().tolist())
    if all(math.isnan(score) for score in scores):
        raise BoardError(f"{path}: the leaderboard has no scores")
    return Board(scores)


def medal(score: float, lines: Lines, is_lower_better: bool) -> Medal | None:
    """The medal that ``score`` (rounded to five digits) earns; a tie with a line earns it."""

    def reaches(line: float) -> bool:
        return score <= line if is_lower_better else score >= line

    if reaches(lines.gold):
        return "gold"
    if reaches(lines.silver):
        return "silver"
    return "bronze" if reaches(lines.bronze) else None


def above_median(score: float, lines: Lines, is_lower_better: bool) -> bool:
    """Strictly better than the median."""
    return score < lines.median if is_lower_better else score > lines.median


def percentile(score: float, board: Board, is_lower_better: bool) -> float:
    """Share of the board's teams that ``score`` beats, ties counting one half: 0 to 1."""
    scores = board.ranked
    worse = sum(other > score if is_lower_better else other < score for other in scores)
    equal = sum(other == score for other in scores)
    return (worse + 0.5 * equal) / len(scores)


def human_rank(score: float, board: Board, is_lower_better: bool) -> float:
    """MLE-Dojo's HumanRank, ``(n - position + 1) / n``: position is the first place whose score is equalled or
    beaten, n + 1 when there is none. 1 for the best, 0 below all."""
    scores = board.ranked
    better = sum(other < score if is_lower_better else other > score for other in scores)
    return (len(scores) - better) / len(scores)
