"""The reward is paid on one half of the answers and the result reported on the other."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from mlrl_core.agent.earlier import earlier_of
from mlrl_core.competitions import Competition, prepare_competition
from mlrl_core.config.environment import RewardConfig
from mlrl_core.errors import MlrlError
from tasks.score import open_grader
from tests.fakes import experience


@pytest.fixture(scope="module")
def diamonds(tmp_path_factory: pytest.TempPathFactory) -> Competition:
    return prepare_competition("diamonds", tmp_path_factory.mktemp("data"))


@pytest.fixture
def submission(diamonds: Competition, tmp_path: Path) -> Path:
    """Answers that are off by a factor that grows with the row."""
    rows = list(csv.DictReader(diamonds.answers_path.open()))
    path = tmp_path / "submission.csv"
    with path.open("w") as file:
        file.write("id,price\n")
        for number, row in enumerate(rows):
            file.write(f"{row['id']},{float(row['price']) * (1 + number / len(rows))}\n")
    return path


def test_two_halves_and_the_whole(diamonds: Competition, submission: Path) -> None:
    whole = open_grader(RewardConfig(), diamonds)(submission)
    split = open_grader(RewardConfig(report_split=True), diamonds)(submission)
    assert whole.raw is not None
    assert split.raw is not None
    assert split.report_raw is not None
    assert whole.report_raw is None
    assert len({whole.raw, split.raw, split.report_raw}) == 3
    # 2000 rows in halves of 1000: the squares add up to the whole.
    assert (split.raw**2 + split.report_raw**2) / 2 == pytest.approx(whole.raw**2)


def test_an_invalid_submission_has_neither(diamonds: Competition, tmp_path: Path) -> None:
    path = tmp_path / "submission.csv"
    path.write_text("id,price\n1,2\n")
    score = open_grader(RewardConfig(report_split=True), diamonds)(path)
    assert (score.valid, score.raw, score.report_raw, score.reason) == (False, None, None, "wrong_row_count")


def test_what_the_policy_reads_holds_nothing_of_the_report_half(diamonds: Competition, submission: Path) -> None:
    score = open_grader(RewardConfig(report_split=True), diamonds)(submission)
    row = dataclasses.replace(experience(1, 0), score=score)
    earlier = earlier_of(row, diamonds.metric, 600)
    assert f"{score.raw:.5g}" in earlier.outcome
    assert f"{score.report_raw:.5g}"[:5] not in earlier.outcome + earlier.output


def test_a_grader_of_its_own_can_not_be_split(diamonds: Competition, tmp_path: Path) -> None:
    outside = dataclasses.replace(diamonds, grade_script=tmp_path / "grade.py")
    open_grader(RewardConfig(), outside)
    with pytest.raises(MlrlError, match="report_split"):
        open_grader(RewardConfig(report_split=True), outside)
