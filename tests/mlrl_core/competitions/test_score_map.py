"""Maps from a raw score to the reward's scale."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlrl_core.competitions import Competition, map_score
from mlrl_core.competitions.board import Board
from mlrl_core.competitions.competition import Rules
from mlrl_core.competitions.metrics import METRICS
from mlrl_core.competitions.score_map import BOUNDED_CAP
from mlrl_core.errors import MlrlError


def competition(metric: str, constant: float | None, strong: float | None, board: Board | None = None) -> Competition:
    return Competition(
        id="x",
        name="x",
        description="",
        metric=metric,
        is_lower_better=METRICS[metric].is_lower_better,
        public_dir=Path(),
        answers_path=Path(),
        sample_submission_path=Path(),
        rules=Rules("id", ("t",)),
        source="folder",
        constant_score=constant,
        strong_score=strong,
        board=board,
    )


def test_raw_signed_flips_losses_only() -> None:
    assert map_score(competition("rmsle", 1, 0.1), 0.3, "raw_signed") == -0.3
    assert map_score(competition("auc", 0.5, 0.9), 0.3, "raw_signed") == 0.3


def test_halving_an_error_is_worth_the_same_everywhere() -> None:
    errors = competition("rmsle", 1.0, 0.1)
    gains = [map_score(errors, e / 2, "bounded") - map_score(errors, e, "bounded") for e in (0.8, 0.4, 0.2)]
    assert gains == pytest.approx([math.log10(2)] * 3)


def test_bounded_is_linear_for_metrics_with_an_upper_bound() -> None:
    assert map_score(competition("auc", 0.5, 0.9), 0.7, "bounded") == pytest.approx(0.5)


def test_a_perfect_loss_is_capped() -> None:
    assert map_score(competition("log_loss", 0.7, 0.3), 0.0, "bounded") == BOUNDED_CAP


def test_board_rank() -> None:
    ranked = competition("rmse", None, None, Board((0.1, 0.2, 0.3, 0.4)))
    assert map_score(ranked, 0.2, "board_rank") == 0.625
    with pytest.raises(MlrlError, match="leaderboard"):
        map_score(competition("rmse", 1, 0.1), 0.2, "board_rank")


def test_a_power_is_of_what_is_above_nothing() -> None:
    auc = competition("auc", 0.5, 0.9)
    assert map_score(auc, 0.7, "bounded", 4) == pytest.approx(0.5**4)
    assert map_score(auc, 0.9, "bounded", 4) == 1
    assert map_score(auc, 0.4, "bounded", 4) == map_score(auc, 0.4, "bounded") == pytest.approx(-0.25)
    ranked = competition("rmse", None, None, Board((0.1, 0.2, 0.3, 0.4)))
    assert map_score(ranked, 0.2, "board_rank", 2) == 0.625**2


@pytest.mark.parametrize("metric", sorted(METRICS))
@given(raw=st.floats(allow_nan=False, allow_infinity=False), power=st.floats(0.1, 16))
@settings(deadline=None)
def test_every_finite_score_maps_to_a_finite_one_and_better_is_never_worth_less(
    metric: str, raw: float, power: float
) -> None:
    bounds = (1.0, 0.1) if METRICS[metric].is_lower_better else (0.1, 1.0)
    any_competition = competition(metric, *bounds)
    mapped = map_score(any_competition, raw, "bounded", power)
    assert math.isfinite(mapped)
    better = raw - abs(raw) * 0.1 if METRICS[metric].is_lower_better else raw + abs(raw) * 0.1
    if math.isfinite(better):
        assert map_score(any_competition, better, "bounded", power) >= mapped


def test_scores_that_are_not_finite_and_missing_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        map_score(competition("auc", 0.5, 0.9), math.nan, "bounded")
    with pytest.raises(MlrlError, match="raw_signed"):
        map_score(competition("auc", None, 0.9), 0.5, "bounded")
    with pytest.raises(MlrlError, match="unknown reward map"):
        map_score(competition("auc", 0.5, 0.9), 0.5, "rank")
