"""Is a competition fit to train on? Findings for people, before a run finds out the hard way."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlrl_core.competitions.board import BOARD_DIRECTION, BoardError, board_warnings
from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.grading import grade_file, round_score
from mlrl_core.competitions.mlebench.load import find_board, load_prepared
from mlrl_core.competitions.mlebench.specs import PAPER12
from mlrl_core.competitions.outside import is_outside
from mlrl_core.competitions.reader import CsvTable, ReadError, parse_csv
from mlrl_core.errors import InfraError, MlrlError

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a check."""

    level: Level
    text: str


def check_competition(competition: Competition) -> list[Finding]:
    """All findings; no ``error`` among them means that submissions can be graded and nothing private is exposed."""
    findings = [*_exposed(competition), *_sample_grades(competition)]
    if not is_outside(competition):
        findings += _tables_agree(competition)
    if BOARD_DIRECTION in board_warnings(competition.board, competition.is_lower_better):
        findings.append(Finding("warning", "the board's order does not show the competition's direction"))
    if competition.board is None:
        findings.append(Finding("warning", "no leaderboard: scores have no medals"))
    if competition.constant_score is None or competition.strong_score is None:
        findings.append(Finding("warning", "no score bounds: reward.reward_map = bounded can't be used"))
    return findings + [Finding("warning", text) for text in competition.warnings]


def _exposed(competition: Competition) -> list[Finding]:
    public = competition.public_dir.resolve()
    found = []
    for path in (competition.answers_path, competition.grade_script):
        if path is not None and path.resolve().is_relative_to(public):
            found.append(Finding("error", f"{path} lies in the public folder: programs can read it"))
    for folder, names, files in os.walk(public):
        for name in (*names, *files):
            path = Path(folder, name)
            if path.is_symlink() and not path.resolve().is_relative_to(public):
                found.append(Finding("error", f"{path} is a link out of the public folder"))
    if not found:
        found.append(Finding("ok", "nothing private in the public folder"))
    private = competition.answers_path.parent
    if private.stat().st_mode & 0o005 and competition.answers_path.stat().st_mode & 0o004:
        text = f"{private} can be read by every user: run 'chmod 700 {private}'"
        found.append(Finding("warning", text))
    return found


def _sample_grades(competition: Competition) -> list[Finding]:
    try:
        result = grade_file(competition, competition.sample_submission_path)
    except (MlrlError, InfraError) as error:
        return [Finding("error", str(error))]
    if result.raw is not None:
        return [Finding("ok", f"the sample submission scores {round_score(result.raw):g}")]
    # A constant has no correlation: such a sample is as MLE-bench has it.
    level: Level = "warning" if result.reason == "non_finite_score" else "error"
    return [Finding(level, f"the sample submission has no score ({result.reason}: {result.detail})")]


def _tables_agree(competition: Competition) -> list[Finding]:
    try:
        answers = parse_csv(competition.answers_path.read_bytes())
        sample = parse_csv(competition.sample_submission_path.read_bytes())
    except (OSError, ReadError) as error:
        return [Finding("error", f"answers or sample submission can't be read ({error})")]
    found = []
    id_column = [competition.id_column] if competition.id_column else []
    for name in [*id_column, *competition.target_columns]:
        for where, table in (("the answers", answers), ("the sample submission", sample)):
            needless = name == competition.id_column and competition.rules.pairing == "by_position"
            if name not in table.header and not needless:
                found.append(Finding("error", f"{where} have no column '{name}'"))
    if found:
        return found
    for name in competition.target_columns:
        found += _dtype_surprises(name, answers, sample)
    if answers.n_rows != sample.n_rows:
        found.append(Finding("error", f"the answers have {answers.n_rows} rows, the sample {sample.n_rows}"))
    return found or [Finding("ok", f"answers and sample submission agree: {answers.n_rows} rows")]


def _dtype_surprises(name: str, answers: CsvTable, sample: CsvTable) -> list[Finding]:
    truth, example = answers.column(name), sample.column(name)
    found = []
    if truth.has_missing and truth.kind != "text":
        found.append(Finding("error", f"answers: column '{name}' has missing values"))
    if truth.is_numeric != example.is_numeric and not (example.has_missing and example.kind == "float"):
        kinds = f"{truth.kind} in the answers, {example.kind} in the sample"
        found.append(Finding("warning", f"column '{name}' is {kinds}"))
    if answers.n_rows and len(set(answers.cells(name))) == 1:
        found.append(Finding("warning", f"answers: column '{name}' holds one value only"))
    return found


def check_paper12(data_dir: Path, boards_dir: Path | None, cleaned_dir: Path) -> list[dict[str, object]]:
    """One entry for each of the paper's twelve: what is there, what is missing, how to get it."""
    return [_check_one(competition_id, data_dir, boards_dir, cleaned_dir) for competition_id in PAPER12]


def _check_one(competition_id: str, data_dir: Path, boards_dir: Path | None, cleaned_dir: Path) -> dict[str, object]:
    spec, folder = PAPER12[competition_id], data_dir / competition_id
    entry: dict[str, object] = {
        "competition_id": competition_id,
        "status": "missing",
        "detail": "",
        "rows": None,
        "expected_rows": spec.test_rows,
        "sample_score": None,
        "expected_sample_score": spec.sample_score,
        "board": "missing",
        "disk_mb": spec.disk_mb,
        "rules": f"accept the rules on Kaggle's page of '{competition_id}', once, in a browser",
        "command": f"mlebench prepare -c {competition_id} --data-dir {data_dir}",
    }
    try:
        if find_board(competition_id, folder, boards_dir) is not None:
            entry["board"] = "present"
    except BoardError as error:
        entry["board"] = "Git LFS pointer" if "LFS" in str(error) else "broken"
        entry["detail"] = str(error)
        boards_dir = None
    if not (folder / "prepared" / "public").is_dir():
        return entry
    try:
        competition = load_prepared(competition_id, folder, boards_dir, cleaned_dir)
        result = grade_file(competition, competition.sample_submission_path)
        entry["rows"] = parse_csv(competition.answers_path.read_bytes()).n_rows
    except BoardError as error:
        return entry | {"status": "present", "detail": str(error)}
    except (MlrlError, ReadError, OSError) as error:
        return entry | {"status": "broken", "detail": str(error)}
    score = None if result.raw is None else round_score(result.raw)
    entry |= {"status": "present", "sample_score": score}
    expected = spec.sample_score
    same = score is None if expected is None else score is not None and math.isclose(score, expected, abs_tol=1e-5)
    if not same:
        entry |= {"status": "differs", "detail": "the sample submission does not score as with MLE-bench's split"}
    return entry
