"""Metrics: properties that must hold for any submission, and hand-computed values."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlrl_core.competitions.competition import Competition, Rules
from mlrl_core.competitions.grading import grade_file
from mlrl_core.competitions.metrics import METRICS, MetricError, auc, multiclass_log_loss, pearson, rmsle
from mlrl_core.competitions.reasons import REASONS
from mlrl_core.competitions.report import report

ODD = ["", "NA", "nan", "inf", "-inf", "-1", "2", "1e308", "-1e308", "5e-324", "x", "True", "0.5 ", "é"]
ODD += ['"', '"a"', "a,b"]


def a_competition(folder: Path, metric: str) -> Competition:
    multi = METRICS[metric].multi
    return Competition(
        id="any",
        name="any",
        description="",
        metric=metric,
        is_lower_better=METRICS[metric].is_lower_better,
        public_dir=folder,
        answers_path=folder / "answers.csv",
        sample_submission_path=folder / "sample.csv",
        rules=Rules("id", ("t1", "t2", "t3") if multi else ("t1",)),
        source="folder",
    )


def some_answers(metric: str, rng: random.Random) -> list[list[str]]:
    """Answers of 3 to 12 rows on which the metric is defined."""
    n = rng.randint(3, 12)
    rows = []
    for index in range(n):
        if metric == "multiclass_log_loss":
            true = rng.randrange(3)
            values = [str(int(c == true)) for c in range(3)]
        elif metric == "mean_column_auc":
            values = [str((index + c) % 2) for c in range(3)]
        elif metric in ("auc", "log_loss"):
            values = [str(index % 2)]
        elif metric in ("accuracy", "quadratic_weighted_kappa"):
            values = [str(index % 3 + 1)]
        elif metric == "word_jaccard":
            values = [rng.choice(["the cat", "sat", "on the mat"])]
        else:
            values = [repr(round(index + rng.random(), 3)) for _ in range(3 if METRICS[metric].multi else 1)]
        rows.append([f"r{index}", *values])
    return rows


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.write_text("".join(",".join(row) + "\n" for row in [header, *rows]))


@pytest.mark.parametrize("metric", sorted(METRICS))
@given(seed=st.integers(0, 2**32))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_submission_gets_a_report_and_none_beats_a_perfect_one(metric: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    competition = a_competition(tmp_path, metric)
    header = ["id", *competition.target_columns]
    answers = some_answers(metric, rng)
    write(tmp_path / "answers.csv", header, answers)
    rows = []
    for row in answers:
        values = [rng.choice([cell, repr(round(rng.random(), 2)), str(rng.randint(0, 4))]) for cell in row[1:]]
        rows.append([row[0], *values])
    if rng.random() < 0.5:
        rows[rng.randrange(len(rows))][rng.randrange(len(header))] = rng.choice(ODD)
    submission = tmp_path / "submission.csv"
    write(submission, header, rows)
    result = grade_file(competition, submission)
    reported = report(competition, submission, result)
    if result.raw is None:
        assert reported["score"] is None
        assert reported["reason"].split(":")[0] in REASONS
        return
    assert math.isfinite(result.raw)
    assert reported["score"] is not None
    perfect = METRICS[metric].perfect
    assert result.raw >= perfect if competition.is_lower_better else result.raw <= perfect + 1e-12
    if seed % 4 == 0:
        write(submission, header, rng.sample(rows, len(rows)))
        assert grade_file(competition, submission).raw == pytest.approx(result.raw, rel=1e-12)


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_answers_themselves_score_perfectly(metric: str, tmp_path: Path) -> None:
    competition = a_competition(tmp_path, metric)
    write(tmp_path / "answers.csv", ["id", *competition.target_columns], some_answers(metric, random.Random(0)))
    (tmp_path / "submission.csv").write_bytes((tmp_path / "answers.csv").read_bytes())
    raw = grade_file(competition, tmp_path / "submission.csv").raw
    assert raw == pytest.approx(METRICS[metric].perfect, abs=1e-12)


def test_hand_computed_values() -> None:
    truth = np.array([0.0, 0.0, 1.0, 1.0])
    assert auc(truth, np.array([0.1, 0.4, 0.35, 0.8])) == 0.75
    assert auc(truth, np.array([0.5, 0.5, 0.5, 0.5])) == 0.5
    assert rmsle(np.array([math.e - 1]), np.array([0.0])) == pytest.approx(1.0)
    one_hot = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert multiclass_log_loss(one_hot, np.array([[0.5, 0.5], [1.0, 0.0]])) == pytest.approx(
        (math.log(2) + 36.04365338911715) / 2
    )
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.0])) == pytest.approx(-1)


def test_large_values_do_not_overflow_a_correlation() -> None:
    huge = np.array([1e200, 2e200, 4e200])
    assert pearson(huge, huge * 1e100) == pytest.approx(1.0)


def test_predictions_at_or_below_minus_one_have_no_rmsle() -> None:
    with pytest.raises(MetricError) as caught:
        rmsle(np.array([1.0]), np.array([-1.0]))
    assert caught.value.reason == "out_of_range"


def test_classes_of_a_binary_metric_may_be_words(tmp_path: Path) -> None:
    competition = a_competition(tmp_path, "auc")
    write(tmp_path / "answers.csv", ["id", "t1"], [["a", "no"], ["b", "yes"], ["c", "no"]])
    write(tmp_path / "submission.csv", ["id", "t1"], [["a", "0.1"], ["b", "0.9"], ["c", "0.2"]])
    assert grade_file(competition, tmp_path / "submission.csv").raw == 1.0
    numbers = a_competition(tmp_path, "rmse")
    assert grade_file(numbers, tmp_path / "submission.csv").reason == "bad_answers"
