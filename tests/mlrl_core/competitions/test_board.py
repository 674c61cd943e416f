"""Boards: reading, medal lines, ranks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mlrl_core.competitions.board import (
    Board,
    BoardError,
    above_median,
    human_rank,
    medal,
    medal_positions,
    percentile,
    read_board,
)


@pytest.mark.parametrize(
    ("teams", "positions"),
    [
        (1, (1, 1, 1)),
        (9, (1, 1, 3)),
        (99, (9, 19, 39)),
        (100, (10, 20, 40)),
        (249, (10, 49, 99)),
        (250, (10, 50, 100)),
        (999, (11, 50, 100)),
        (1000, (12, 50, 100)),
        (2500, (15, 125, 250)),
    ],
)
def test_medal_positions(teams: int, positions: tuple[int, int, int]) -> None:
    assert medal_positions(teams) == positions


def test_positions_equal_the_float_formula_for_every_size() -> None:
    for n in range(1, 20_001):
        gold = max(1, int(n * 0.1)) if n < 100 else 10 if n < 250 else 10 + int(n * 0.002)
        silver = max(1, int(n * 0.2)) if n < 250 else 50 if n < 1000 else int(n * 0.05)
        bronze = max(1, int(n * 0.4)) if n < 250 else 100 if n < 1000 else int(n * 0.1)
        assert medal_positions(n) == (gold, silver, bronze), n


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        ("score\n", "no rows"),
        ("", "no column 'score'"),
        ("rank,points\n1,2\n", "no column 'score'"),
        ("score\nfirst\nsecond\n", "not a number"),
        ('score\n""\n', "no scores"),
        ("score\n1,2\n", "not a valid leaderboard"),
    ],
)
def test_a_broken_board_names_its_fault(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.csv"
    path.write_text(text)
    with pytest.raises(BoardError, match=fault) as caught:
        read_board(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_the_score_column_counts_and_the_order_stays(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.csv"
    path.write_text("rank,score\n1,0.5\n2,\n3,0.9\n")
    board = read_board(path)
    assert board.scores[0] == 0.5
    assert math.isnan(board.scores[1])
    assert board.lines().median == 0.7
    assert board.contradicts(is_lower_better=False)
    assert not board.contradicts(is_lower_better=True)


def test_ties_with_a_line_earn_it_and_the_median_is_strict() -> None:
    lines = Board(tuple(1 - i / 100 for i in range(100))).lines()
    assert medal(lines.gold, lines, False) == "gold"
    assert medal(lines.silver, lines, False) == "silver"
    assert medal(lines.bronze, lines, False) == "bronze"
    assert medal(lines.bronze - 1e-5, lines, False) is None
    assert not above_median(lines.median, lines, False)


def test_ranks() -> None:
    up = Board((0.9, math.nan, 0.6, 0.4))
    assert human_rank(0.9, up, False) == 1.0
    assert human_rank(0.5, up, False) == pytest.approx(1 / 3)
    assert human_rank(0.6, up, False) == pytest.approx(2 / 3)
    assert human_rank(0.1, up, False) == 0.0
    assert percentile(0.6, up, False) == 0.5
    down = Board((0.1, 0.2, 0.2, 0.9))
    assert human_rank(0.2, down, True) == 0.75
    assert percentile(0.2, down, True) == 0.5
    assert percentile(0.05, down, True) == 1.0


@pytest.mark.parametrize("scores", [(0.5,), (0.5, 0.5), (0.4, 0.9), (0.9, math.nan), (0.9, 0.3, 0.5)])
def test_a_board_that_does_not_show_the_direction_is_flagged(scores: tuple[float, ...]) -> None:
    assert Board(scores).contradicts(is_lower_better=False)
