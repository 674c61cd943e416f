"""The command: bad input is one line, exit 2, and nothing is written or overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlrl_core.experience import ExperienceStore
from mlrl_core.experience.state import RunState, write_state
from tests.fakes import experience
from tests.flows.conftest import make_run


def mlrl(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlrl_core.cli", *arguments]
    env = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
    root = str(Path(__file__).parents[1])
    env |= {"PYTHONPATH": root, "MLRL_DATA": str(cwd / "data"), "PREFECT_HOME": str(cwd / "prefect"), **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--profile", "nanno"], "did you mean 'nano'"),
        (["train", "--set", "ppo.learning_rat=1"], "did you mean 'ppo.learning_rate'"),
        (["train", "--set", "steps"], "key=value"),
        (["train", "--competition", "diamond"], "did you mean 'diamonds'"),
        (["train", "--run", "/proc/1/nothing"], "can't be written"),
        (["train", "--run", "foreign"], "not empty"),
        (["train", "--run", "old"], "already holds a run"),
        (["train", "--run", "old", "--dry-run"], "already holds a run"),
        (["train", "--resume", "foreign"], "holds no run"),
        (["train", "--resume", "old", "--seed", "1"], "leave out --seed"),
        (["train", "--set", "tracking.uri=./mlruns"], "sqlite:///"),
        (["train", "--set", "tracking.uri=foo://bar"], "mlflow has no such store"),
        (["train", "--dry-run", "--set", "reward.reward_map=board_rank"], "'diamonds' has no leaderboard"),
        (["train", "--profile", "bytes.toml"], "bytes.toml: not valid TOML"),
        (["report", "foreign"], "holds no run"),
        (["report", "old"], "nothing to report"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_changes_nothing(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    (tmp_path / "bytes.toml").write_bytes(b"\xa6\xff")
    make_run(tmp_path / "old")
    before = _files(tmp_path)
    done = mlrl(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    after = {name: data for name, data in _files(tmp_path).items() if not name.startswith(str(tmp_path / "data"))}
    assert after == before


def test_a_prefect_server_that_is_down_is_one_line(tmp_path: Path) -> None:
    done = mlrl("train", cwd=tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 2
    assert "http://127.0.0.1:9/api does not answer" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_prints_a_configuration_that_loads(tmp_path: Path) -> None:
    from mlrl_core.config import load_config

    done = mlrl("train", "--dry-run", "--seed", "4", "--set", "steps=5", cwd=tmp_path)
    assert done.returncode == 0
    assert not (tmp_path / "runs").exists()
    (tmp_path / "printed.toml").write_text(done.stdout)
    printed = load_config(str(tmp_path / "printed.toml"))
    assert (printed.seed, printed.steps, printed.competition.id) == (4, 5, "diamonds")


def test_runs_and_report_read_the_run_directory_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "first", "steps=1")
    store = ExperienceStore(run)
    for slot in range(4):
        store.append(experience(1, slot, "graded" if slot else "error"))
    store.compact(1)
    (run.version(1)).mkdir(parents=True)
    (run.version(1) / "DONE").touch()
    listed = json.loads(mlrl("runs", "--json", cwd=tmp_path).stdout)
    assert [(each["run"], each["step"], each["valid_share"]) for each in listed] == [(str(run.path), 1, 0.75)]
    assert "first" in mlrl("runs", cwd=tmp_path).stdout
    assert "no runs in" in mlrl("runs", "elsewhere", cwd=tmp_path).stdout
    report = mlrl("report", str(run.path), "--json", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["last"]["valid_share"] == 0.75
    assert (run.report / "learning_curve.png").exists()


def test_a_finished_run_has_nothing_to_go_on_with(tmp_path: Path) -> None:
    run = make_run(tmp_path / "done")
    write_state(run, RunState().ended("finished"))
    before = _files(tmp_path / "done")
    done = mlrl("train", "--resume", "done", cwd=tmp_path)
    assert done.returncode == 0
    assert "is finished" in done.stderr
    assert _files(tmp_path / "done") == before


def test_a_damaged_run_is_one_line_and_hides_no_other(tmp_path: Path) -> None:
    for name in ("sound", "config.toml", "state.json", "experiences"):
        run = make_run(tmp_path / name)
        store = ExperienceStore(run)
        store.append(experience(1, 0))
        store.compact(1)
        run.version(1).mkdir(parents=True)
        (run.version(1) / "DONE").touch()
    (tmp_path / "config.toml" / "config.toml").write_bytes(b"\xa6x")
    (tmp_path / "state.json" / "state.json").write_bytes(b"\xa6x")
    (shard,) = (tmp_path / "experiences" / "experiences").rglob("*.parquet")
    shard.write_bytes(shard.read_bytes()[:-40])
    done = mlrl("runs", ".", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {Path(each["run"]).name: each for each in json.loads(done.stdout)}
    assert {name for name, each in found.items() if each["status"] == "damaged"} == set(found) - {"sound"}
    assert len(found) == 4
    shown = mlrl("runs", ".", cwd=tmp_path)
    assert "sound" in shown.stdout
    for name in ("config.toml", "state.json", "experiences"):
        assert name in found[name]["problem"]
    for name in ("config.toml", "experiences"):
        report = mlrl("report", name, cwd=tmp_path)
        assert report.returncode == 2, report.stderr
        assert len(report.stderr.strip().splitlines()) == 1


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    script = (
        "import sys, mlrl_core.cli\n"
        "heavy = {'torch', 'prefect', 'mlflow', 'sklearn', 'matplotlib', 'transformers', 'docker', 'pandas'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
