"""Every grader case: outcomes that MLE-bench's own graders gave, with the documented differences."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from pathlib import Path

import pytest

from mlrl_core.competitions.board import BoardError, read_board
from mlrl_core.competitions.grading import grade_file
from mlrl_core.competitions.mlebench import PAPER12
from mlrl_core.competitions.mlebench.load import from_spec
from mlrl_core.competitions.report import grade_report

CASES = Path(__file__).parents[2] / "cases" / "grading"
NAMES = sorted(path.name for path in CASES.iterdir() if path.is_dir())
# Ten competitions outside the paper's twelve: their graders have quirks of their own and are MLE-bench's to run
# (`mlebench.external`), so their cases are not ours.
OUTSIDE = {
    "billion-quotes": "billion-word-imputation",
    "champs-perfect": "champs-scalar-coupling",
    "dogcat-half": "dogs-vs-cats-redux-kernels-edition",
    "dogcat-hard-wrong": "dogs-vs-cats-redux-kernels-edition",
    "jigsaw-in-order": "jigsaw-toxic-comment-classification-challenge",
    "jigsaw-permuted-columns": "jigsaw-toxic-comment-classification-challenge",
    "tags-micro-f1": "facebook-recruiting-iii-keyword-extraction",
    "taxi-key-mismatch": "new-york-city-taxi-fare-prediction",
    "textnorm-nan-word": "text-normalization-challenge-english-language",
    "titanic-bool": "spaceship-titanic",
    "titanic-space-true": "spaceship-titanic",
    "ventilator-masked-rows": "ventilator-pressure-prediction",
    "whale-double-space": "whale-categorization-playground",
    "whale-second-place": "whale-categorization-playground",
}


def make_submission(case: dict[str, object], folder: Path) -> Path:
    """The submission of a case in a copy of its folder: made where git can't keep it, else it must be there."""
    submission = folder / str(case["submission"])
    target = folder / str(case.get("make_target", ""))
    match case.get("make"):
        case "symlink":
            submission.symlink_to(target)
        case "hardlink":
            os.link(target, submission)
        case "directory":
            submission.mkdir()
        case "fifo":
            os.mkfifo(submission)
        case None:
            assert submission.exists() != bool(case.get("absent")), "broken checkout"
        case other:
            raise AssertionError(f"unknown make: {other}")
    return submission


def test_all_cases_are_accounted_for() -> None:
    ids = {name: json.loads((CASES / name / "case.json").read_text())["competition_id"] for name in NAMES}
    assert {name: i for name, i in ids.items() if i not in PAPER12} == OUTSIDE
    assert len(NAMES) - len(OUTSIDE) == 98


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OUTSIDE])
def test_case(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(CASES / name, folder)
    case = json.loads((folder / "case.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    ours = expected["ours"]
    submission = make_submission(case, folder)
    if ours.get("board_error"):
        with pytest.raises(BoardError):
            read_board(folder / case["leaderboard"])
        board = None
    else:
        board = read_board(folder / case["leaderboard"])
    spec = PAPER12[case["competition_id"]]
    competition = from_spec(spec, folder, folder / case["answers"], folder / "no-sample.csv", board)
    report = grade_report(competition, submission)
    if board is None:
        assert report["score"] == ours["score_without_board"]
        assert report["gold_medal"] is None
    else:
        assert {key: report[key] for key in ours["report"]} == ours["report"]
    assert report["valid_submission"] or report["reason"]
    assert ("board_direction" in report["warnings"]) >= (ours.get("difference") == "board_direction")
    raw, raw_expected = grade_file(competition, submission).raw, expected["new"].get("raw_score")
    if raw is not None and not isinstance(raw_expected, str):
        assert raw == pytest.approx(raw_expected, rel=1e-9)
    json.dumps(report, allow_nan=False)


def test_the_cases_are_the_reference_copy() -> None:
    reference = Path(__file__).parents[4] / "shared" / "cases" / "grading"
    if not reference.is_dir():
        pytest.skip("no reference copy beside this checkout")

    def differences(compared: filecmp.dircmp[str]) -> list[str]:
        found = [*compared.left_only, *compared.right_only, *compared.funny_files]
        _, mismatch, errors = filecmp.cmpfiles(compared.left, compared.right, compared.common_files, shallow=False)
        return [*found, *mismatch, *errors, *(d for sub in compared.subdirs.values() for d in differences(sub))]

    assert differences(filecmp.dircmp(CASES, reference, ignore=[])) == []
