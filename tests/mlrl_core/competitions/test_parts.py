"""Reward half and report half of the answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mlrl_core.competitions import grade, grade_in_child, prepare_competition
from mlrl_core.competitions.metrics import METRICS
from mlrl_core.competitions.parts import TOO_SMALL, part_mask
from mlrl_core.competitions.reader import parse_csv
from mlrl_core.competitions.worker import close_workers
from mlrl_core.errors import MlrlError


@pytest.mark.parametrize("n", [20, 21, 500])
def test_halves_are_disjoint_complete_and_of_one_size(n: int) -> None:
    truth = np.arange(n) % 3
    rows = np.arange(n)
    reward, report = (part_mask(truth, rows, "x", part) for part in ("reward", "report"))
    assert (reward ^ report).all()
    assert abs(int(reward.sum()) - int(report.sum())) <= 1
    assert part_mask(truth, rows, "x", "all").all()


def test_classes_and_ranges_are_alike_in_both() -> None:
    labels = np.array([0] * 400 + [1] * 100)
    numbers = np.random.default_rng(0).lognormal(size=500)
    words = np.array(["a", "b"] * 250, dtype=object)
    one_hot = np.eye(5)[np.arange(500) % 5]
    rows = np.arange(500)
    mask = part_mask(labels, rows, "x", "reward")
    assert labels[mask].sum() == 50
    mask = part_mask(numbers, rows, "x", "reward")
    assert np.median(numbers[mask]) == pytest.approx(np.median(numbers[~mask]), rel=0.05)
    mask = part_mask(words, rows, "x", "reward")
    assert (words[mask] == "a").sum() == 125
    mask = part_mask(one_hot, rows, "x", "reward")
    assert one_hot[mask].sum(axis=0).tolist() == [50] * 5


def test_the_halves_depend_on_the_answers_and_not_on_the_order_of_pairs() -> None:
    truth = np.random.default_rng(1).random(100)
    rows = np.arange(100)
    order = np.random.default_rng(2).permutation(100)
    mask = part_mask(truth, rows, "x", "reward")
    assert (part_mask(truth[order], rows[order], "x", "reward") == mask[order]).all()
    assert (part_mask(truth, rows, "another", "reward") != mask).any()


def test_scores_of_the_halves_are_scores_of_those_rows(tmp_path: Path) -> None:
    competition = prepare_competition("diamonds", tmp_path)
    sample = competition.sample_submission_path
    whole, reward, report = (grade(competition, sample, part).raw for part in ("all", "reward", "report"))
    assert None not in (whole, reward, report)
    assert reward != report
    assert (reward**2 + report**2) / 2 == pytest.approx(whole**2, rel=1e-9)  # RMSLE over two equal halves
    assert grade_in_child(competition, sample, part="report").raw == report
    close_workers()
    truth = parse_csv(competition.answers_path.read_bytes()).column("price").floats()
    assert METRICS["rmsle"].function(truth, np.full(len(truth), 2463.5)) == pytest.approx(whole)


def test_the_whole_file_is_checked_whatever_the_part(tmp_path: Path) -> None:
    competition = prepare_competition("diamonds", tmp_path)
    lines = competition.sample_submission_path.read_text().splitlines()
    lines[7] = lines[7].split(",")[0] + ","
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join(lines))
    assert [grade(competition, bad, part).reason for part in ("reward", "report")] == ["missing_values"] * 2


def test_few_rows_are_not_split_and_own_graders_can_not_be(tmp_path: Path) -> None:
    competition = prepare_competition("penguins", tmp_path)
    small = dataclasses.replace(competition, answers_path=tmp_path / "few.csv")
    lines = competition.answers_path.read_text().splitlines()[:8]
    small.answers_path.write_text("\n".join(lines))
    score = grade(small, _copy(small.answers_path, tmp_path / "s.csv"), "reward")
    assert (score.raw, TOO_SMALL in score.warnings) == (1.0, True)
    own = dataclasses.replace(competition, grade_script=tmp_path / "grade.py")
    with pytest.raises(MlrlError, match="can't be split"):
        grade(own, competition.sample_submission_path, "reward")


def _copy(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes())
    return target
