"""Users' own folders and graders, and competitions that MLE-bench itself grades."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mlrl_core.competitions import Competition, grade, grade_in_child, load_competition
from mlrl_core.competitions.outside import OutsideFailed, run_json
from mlrl_core.errors import InfraError, MlrlError

TOML = """
id = "mine"
metric = "{metric}"
id_column = "id"
target_columns = ["y"]
"""
GRADE_PY = """
import csv, os, time
def grade(submission, answers):
    text = open(submission).read()
    if "hang" in text:
        time.sleep(60)
    if "crash" in text:
        os._exit(3)
    if "fork" in text:
        if os.fork() == 0:
            time.sleep(60)
    if "nan" in text:
        return float("nan")
    print("noise on standard output")
    rows = [list(csv.DictReader(open(p))) for p in (submission, answers)]
    if len(rows[0]) != len(rows[1]):
        raise ValueError("wrong number of rows")
    return sum(abs(float(a["y"]) - float(b["y"])) for a, b in zip(*rows))
"""


def make_folder(root: Path, toml: str, grader: str | None = None) -> Path:
    for name in ("public", "private"):
        (root / name).mkdir(parents=True)
    (root / "competition.toml").write_text(toml)
    (root / "public" / "description.md").write_text("# Mine")
    (root / "public" / "sample_submission.csv").write_text("id,y\na,0\nb,0\n")
    (root / "private" / "answers.csv").write_text("id,y\na,1\nb,2\n")
    if grader is not None:
        (root / "private" / "grade.py").write_text(grader)
    return root


@pytest.fixture
def own(tmp_path: Path) -> Competition:
    toml = TOML.format(metric="custom") + 'is_lower_better = true\ngrader = "private/grade.py"\n'
    return load_competition(str(make_folder(tmp_path / "mine", toml, GRADE_PY)))


def submit(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "submission.csv"
    path.write_text(text)
    return path


def test_a_folder_with_a_named_metric(tmp_path: Path) -> None:
    make_folder(tmp_path / "data" / "mine", TOML.format(metric="mae"))
    competition = load_competition("mine", tmp_path / "data")
    assert competition.is_lower_better
    assert competition.description == "# Mine"
    assert grade(competition, submit(tmp_path, "id,y\nb,2\na,0\n")).raw == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('metric = "mape"', "metric 'mape' is unknown"),
        ('metric = "mae"\nis_lower_better = false', "contradicts"),
        ('metric = "mae"\nanswer = "x"', "answer"),
        ('metric = "mae"\nanswers = "../other.csv"', "leads out"),
        ('metric = "mae"\nanswers = "public/sample_submission.csv"', "lies in the public folder"),
        ('metric = "mae"\nanswers = "private/none.csv"', "is missing"),
        ('metric = "mae"\npublic_dir = "nowhere"', "is not a folder"),
        ('metric = "mae', "can't be read as TOML"),
        ('metric = "custom"\ngrader = "private/none.py"', "is_lower_better"),
    ],
)
def test_mistakes_in_the_folder_are_one_line(change: str, message: str, tmp_path: Path) -> None:
    toml = TOML.replace('metric = "{metric}"', change)
    with pytest.raises(MlrlError, match=message) as caught:
        load_competition(str(make_folder(tmp_path / "mine", toml)))
    assert "\n" not in str(caught.value)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "mine", TOML.format(metric="mae"))
    (folder / "private" / "answers.csv").unlink()
    (folder / "private" / "answers.csv").symlink_to("/etc/hostname")
    with pytest.raises(MlrlError, match="leads out"):
        load_competition(str(folder))


def test_an_own_grader(own: Competition, tmp_path: Path) -> None:
    assert grade(own, submit(tmp_path, "id,y\na,1\nb,2\n")).raw == 0.0
    assert grade_in_child(own, submit(tmp_path, "id,y\na,1\nb,3\n")).raw == 1.0
    refused = grade(own, submit(tmp_path, "id,y\na,1\n"))
    assert (refused.valid, refused.reason) == (False, "custom_grader")
    assert grade(own, submit(tmp_path, "nan")).reason == "non_finite_score"
    assert grade(own, tmp_path / "none.csv").reason == "missing"
    link = tmp_path / "link.csv"
    link.symlink_to(own.answers_path)
    assert grade(own, link).reason == "symlink"


def test_an_own_grader_that_crashes_or_hangs_makes_the_submission_invalid(own: Competition, tmp_path: Path) -> None:
    assert grade_in_child(own, submit(tmp_path, "crash")).reason == "grader_failed"
    start = time.monotonic()
    assert grade_in_child(own, submit(tmp_path, "hang"), deadline_s=2).reason == "grader_failed"
    assert time.monotonic() - start < 20


def test_a_grandchild_neither_delays_nor_survives(own: Competition, tmp_path: Path) -> None:
    start = time.monotonic()
    assert grade_in_child(own, submit(tmp_path, "id,y\nfork,1\nb,2\n"), deadline_s=20).valid
    assert time.monotonic() - start < 10


def test_an_own_grader_that_fails_on_the_sample_is_an_infrastructure_fault(tmp_path: Path) -> None:
    toml = TOML.format(metric="custom") + 'is_lower_better = true\ngrader = "private/grade.py"\n'
    folder = make_folder(tmp_path / "mine", toml, "import os\ndef grade(s, a): os._exit(1)\n")
    with pytest.raises(InfraError, match="sample submission"):
        grade_in_child(load_competition(str(folder)), submit(tmp_path, "id,y\n"))


def test_the_grader_gets_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    code = "import json, os, sys; os.write(int(sys.argv[1]), json.dumps({'seen': list(os.environ)}).encode())"
    assert "SECRET_TOKEN" not in run_json([sys.executable, "-c", code, "{fd}"], 20, tmp_path)["seen"]
    with pytest.raises(OutsideFailed, match="can't be started"):
        run_json(["/nonexistent/python"], 5, tmp_path)


FAKE_REGISTRY = """
from pathlib import Path
class C:
    def __init__(self, root, id):
        self.id, self.name, self.description = id, "Fake", "# Fake"
        self.public_dir = root / id / "prepared" / "public"
        self.answers = root / id / "prepared" / "private" / "answers.csv"
        self.sample_submission = root / id / "prepared" / "public" / "sample.csv"
        self.leaderboard = root / id / "board.csv"
class Registry:
    root = Path(".")
    def set_data_dir(self, path):
        new = Registry(); new.root = path; return new
    def list_competition_ids(self): return ["fake-comp", "other-comp"]
    def get_competition(self, id): return C(self.root, id)
registry = Registry()
"""
FAKE_GRADE = """
class Report:
    def __init__(self, score): self.score = score
    def to_dict(self): return {"score": self.score}
def grade_csv(path, competition):
    print("a log line")
    text = path.read_text()
    if "broken" in text: raise ValueError("broken")
    return Report(None if "bad" in text else 0.25)
"""


@pytest.fixture
def mlebench(tmp_path: Path) -> tuple[Path, Path]:
    """An interpreter that imports a stand-in with MLE-bench's interface, and a prepared data directory for it."""
    package = tmp_path / "site" / "mlebench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "registry.py").write_text(FAKE_REGISTRY)
    (package / "grade.py").write_text(FAKE_GRADE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    data = tmp_path / "data"
    for part in ("public", "private"):
        (data / "fake-comp" / "prepared" / part).mkdir(parents=True)
    (data / "fake-comp" / "prepared" / "public" / "sample.csv").write_text("id\n1\n")
    (data / "fake-comp" / "prepared" / "private" / "answers.csv").write_text("id\n1\n")
    (data / "fake-comp" / "board.csv").write_text("score\n0.1\n0.2\n0.3\n")
    return python, data


def test_other_mlebench_competitions_are_graded_by_mlebench(mlebench: tuple[Path, Path], tmp_path: Path) -> None:
    python, data = mlebench
    competition = load_competition("fake-comp", data, mlebench_python=python)
    assert competition.is_lower_better
    score = grade_in_child(competition, submit(tmp_path, "id\n1\n"))
    assert (score.raw, score.percentile) == (0.25, pytest.approx(1 / 3))
    assert grade(competition, submit(tmp_path, "bad")).reason == "custom_grader"
    assert grade(competition, submit(tmp_path, "broken")).reason == "custom_grader"
    with pytest.raises(MlrlError, match="mlebench prepare -c other-comp"):
        load_competition("other-comp", data, mlebench_python=python)
    with pytest.raises(MlrlError, match="MLRL_MLEBENCH_PYTHON"):
        load_competition("fake-comp", data)
    with pytest.raises(MlrlError, match="unknown competition"):
        load_competition("no-such-comp", data, mlebench_python=python)
    with pytest.raises(MlrlError, match="can't be asked"):
        load_competition("fake-comp", data, mlebench_python=Path(os.devnull))
