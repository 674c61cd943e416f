"""``mlrl competitions`` and ``mlrl grade`` as a user or a program calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from mlrl_core.competitions import commands
from mlrl_core.errors import MlrlError

CASES = Path(__file__).parents[2] / "cases" / "grading"
REPORT_KEYS = (
    "competition_id score gold_threshold silver_threshold bronze_threshold median_threshold any_medal gold_medal "
    "silver_medal bronze_medal above_median submission_exists valid_submission is_lower_better created_at "
    "submission_path reason warnings versions"
)

app = typer.Typer(pretty_exceptions_enable=False)
app.add_typer(commands.app, name="competitions")
app.command("grade")(commands.grade)


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def grade_case(name: str, *more: object) -> Result:
    case = json.loads((CASES / name / "case.json").read_text())
    submission, answers = CASES / name / case["submission"], CASES / name / case["answers"]
    return run("grade", case["competition_id"], submission, "--answers", answers, *more)


def test_grade_prints_mlebenchs_report(tmp_path: Path) -> None:
    board = CASES / "raop-bom" / "leaderboard.csv"
    result = grade_case("raop-bom", "--leaderboard", board, "--data-dir", tmp_path, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert list(report) == REPORT_KEYS.split()
    assert (report["score"], report["gold_medal"], report["reason"]) == (1.0, True, None)


def test_grade_exits_0_for_an_invalid_submission_and_gives_the_reason(tmp_path: Path) -> None:
    result = grade_case("raop-latin1-byte", "--data-dir", tmp_path, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["reason"].startswith("not_utf8: ")
    assert (report["score"], report["gold_threshold"], report["gold_medal"]) == (None, None, None)
    assert "no score, not_utf8" in grade_case("raop-latin1-byte", "--data-dir", tmp_path).stdout


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="no rows"):
        grade_case("raop-bom", "--leaderboard", CASES / "medal-empty-board" / "leaderboard.csv")
    with pytest.raises(MlrlError, match="no such file of answers"):
        run("grade", "spooky-author-identification", "s.csv", "--answers", tmp_path / "none.csv")
    with pytest.raises(MlrlError, match="unknown suite"):
        run("competitions", "check", "--suite", "paper13")
    with pytest.raises(MlrlError, match="name a competition"):
        run("competitions", "check")
    with pytest.raises(MlrlError, match="unknown competition"):
        run("grade", "spooky", "s.csv", "--data-dir", tmp_path)


def test_prepare_list_show_check_and_grade(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path)
    assert "next: mlrl train" in run("competitions", "prepare", "micro-regression", *data).stdout
    listed = {entry["id"]: entry for entry in json.loads(run("competitions", "list", *data, "--json").stdout)}
    assert listed["micro-regression"]["prepared"]
    assert "micro-regression" in run("competitions", "list", *data).stdout
    shown = json.loads(run("competitions", "show", "micro-regression", *data, "--json").stdout)
    assert shown["metric"] == "rmse"
    assert "train.csv: 120 rows" in shown["preview"]
    assert "hist_boosting" in run("competitions", "show", "micro-regression", *data).stdout
    checked = run("competitions", "check", "micro-regression", *data)
    assert checked.exit_code == 0
    assert "the sample submission scores" in checked.stdout
    sample = tmp_path / "micro-regression" / "prepared" / "public" / "sample_submission.csv"
    assert "warning: sample_copy" in run("grade", "micro-regression", sample, *data).stdout
    (tmp_path / "micro-regression" / "prepared" / "private" / "answers.csv").write_text("id,target\n1,2\n")
    assert run("competitions", "check", "micro-regression", *data, "--json").exit_code == 1


def test_prepare_without_names_prepares_all(tmp_path: Path) -> None:
    prepared = json.loads(run("competitions", "prepare", "--data-dir", tmp_path, "--json").stdout)
    assert {"diamonds", "breast-cancer", "digits", "penguins", "micro-regression", "micro-classification"} <= {
        entry["id"] for entry in prepared
    }


def test_the_suite_exits_1_while_something_is_missing(tmp_path: Path) -> None:
    result = run("competitions", "check", "--suite", "paper12", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.count("mlebench prepare -c ") == 12
    entries = json.loads(run("competitions", "check", "--suite", "paper12", "--data-dir", tmp_path, "--json").stdout)
    assert [entry["status"] for entry in entries] == ["missing"] * 12
