"""Summaries of evaluations, by hand."""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import polars as pl
import pytest

from mlrl_core.evaluation.summary import COLUMNS, Mean, expected_best, metrics_of, standard_errors, summarise


def table(*rows: tuple[str, str | None, str, float | None, float | None]) -> pl.DataFrame:
    """(id, parent, outcome, score, reported score); the first five digits of an id are its wave."""
    return pl.DataFrame(
        [
            {
                "solution_id": name,
                "wave": int(name[:5]),
                "competition_id": "toy",
                "parent_id": parent,
                "prompt_kind": "improve" if parent else "solve",
                "outcome": outcome,
                "score_raw": raw,
                "score_report_raw": report,
                "execution_duration_s": 2.0,
            }
            for name, parent, outcome, raw, report in rows
        ],
        schema={
            **dict.fromkeys(COLUMNS, pl.String),
            "wave": pl.Int64,
            "score_raw": pl.Float64,
            "score_report_raw": pl.Float64,
            "execution_duration_s": pl.Float64,
        },
    )


def test_the_better_is_chosen_by_one_half_and_counted_by_the_other() -> None:
    rows = table(
        ("00001-000", None, "graded", 0.50, 0.40),
        ("00001-001", None, "error", None, None),
        ("00001-002", None, "graded", 0.30, 0.20),
        ("00001-003", None, "infra_error", None, None),  # nobody's fault: counts nowhere
        ("00002-000", "00001-000", "graded", 0.60, 0.10),  # better where it is chosen, worse where it counts
        ("00002-001", "00001-002", "error", None, None),
        ("00002-002", None, "graded", 0.99, 0.99),  # a filler
    )
    (found,) = summarise(7, rows, lambda name, raw: raw)
    assert found.solve.solutions == 3
    assert found.solve.valid is not None
    assert found.solve.valid.mean == pytest.approx(2 / 3)
    assert found.solve.reward is not None
    assert found.solve.reward.mean == pytest.approx(0.3)
    assert found.improve is not None
    assert found.improve.valid is not None
    assert found.improve.valid.mean == 0.5
    assert found.better is not None
    assert found.better.reward is not None
    assert found.better.reward.mean == pytest.approx((0.10 + 0.20) / 2)
    assert found.better.solutions == 3
    metrics = metrics_of([found])
    assert metrics["eval/solve/valid"] == pytest.approx(2 / 3)
    assert metrics["eval/better/reward"] == pytest.approx(0.15)


def test_without_a_split_or_improvements() -> None:
    (found,) = summarise(0, table(("00001-000", None, "graded", 0.5, None)), lambda name, raw: -raw)
    assert found.improve is None
    assert found.better is None
    assert found.solve.reward == Mean(-0.5, None, 1)
    assert (found.best_id, found.best_raw) == ("00001-000", 0.5)


def test_nothing_valid_is_no_number() -> None:
    (found,) = summarise(0, table(("00001-000", None, "error", None, None)), lambda name, raw: raw)
    assert found.solve.valid == Mean(0.0, None, 1)
    assert found.solve.reward is None
    assert found.best_id is None


def test_standard_errors_of_a_difference() -> None:
    before, after = Mean(1.0, 0.3, 9), Mean(2.0, 0.4, 9)
    assert standard_errors(before, after) == pytest.approx(2.0)
    assert standard_errors(before, None) is None
    assert standard_errors(Mean(1.0, None, 1), after) is None
    assert Mean.of([1.0, 3.0]) == Mean(2.0, math.sqrt(2) / math.sqrt(2), 2)


def test_each_of_several_competitions_is_summarised_apart() -> None:
    rows = table(
        ("00001-000", None, "graded", 0.5, None),
        ("00001-001", None, "graded", 0.25, None),
        ("00001-002", None, "error", None, None),
    ).with_columns(competition_id=pl.Series(["a", "b", "b"]))
    everything, a, b = summarise(3, rows, lambda name, raw: {"a": 1, "b": -1}[name] * raw)
    assert [each.competition_id for each in (everything, a, b)] == [None, "a", "b"]
    assert everything.solve.reward == Mean.of([0.5, -0.25])
    assert (everything.best_id, everything.best_raw) == (None, None)
    assert (a.best_raw, b.best_raw) == (0.5, 0.25)
    assert b.solve.valid == Mean.of([1.0, 0.0])
    metrics = metrics_of([everything, a, b])
    assert metrics["eval/solve/reward"] == pytest.approx(0.125)
    assert metrics["eval/b/solve/reward"] == -0.25
    assert "eval/best_raw" not in metrics
    assert "eval/a/best_raw" in metrics


@pytest.mark.parametrize("failures", [0, 2, 4])
def test_the_expected_best_is_the_mean_over_all_draws_with_a_valid_one(failures: int) -> None:
    rewards = [-0.5, 0.25, 0.25, 0.75]
    draws = itertools.combinations([None] * failures + rewards, 3)
    bests = [max(kept) for draw in draws if (kept := [each for each in draw if each is not None])]
    assert expected_best(rewards, failures + 4, 3) == pytest.approx(fmean(bests))
    assert expected_best(rewards, 2, 3) is None
    assert expected_best([], 9, 3) is None


def test_the_expected_best_is_chosen_by_one_half_and_counted_by_the_other() -> None:
    """Sixteen draws of sixteen: the one that looks best, worth what the other half says."""
    rows = [(f"00001-{number:03}", None, "graded", float(number), -float(number)) for number in range(16)]
    (found,) = summarise(0, table(*rows), lambda name, raw: raw)
    assert found.solve.best_of == -15.0
    assert metrics_of([found])["eval/solve/best_of_16"] == -15.0
