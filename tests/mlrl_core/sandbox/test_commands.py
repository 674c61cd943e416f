"""``mlrl sandbox run | check | sweep``: fixed keys, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox.commands import app
from mlrl_core.sandbox.helper.cgroups import PREFIX
from mlrl_core.sandbox.local import LocalSandbox

BASE = ["--backend", "bubblewrap", "--memory-mb", "256", "--set", "sandbox.slots=1"]
KEYS = {
    *("status", "exit_code", "signal", "duration_s", "wall_s", "cpu_s", "peak_memory_mb", "oom_seen", "idle_suspect"),
    *("clock_suspect", "output_truncated", "stdout", "stderr", "milestones", "submission"),
}


def invoke(*arguments: str) -> object:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(
        "import os\nprint(os.environ['GREETING'], open('input/a.csv').read())\n"
        "open('submission.csv', 'w').write('id\\n1\\n')\nraise SystemExit(3)\n"
    )
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "a.csv").write_text("id")
    return path


def test_run_prints_the_fixed_keys(program: Path, tmp_path: Path) -> None:
    done = invoke(
        *("run", str(program), *BASE, "--inputs", str(tmp_path / "inputs"), "--env", "GREETING=hello=you"),
        *("--time-limit", "9", "--json", "--submission", str(tmp_path / "kept.csv")),
    )
    assert done.exit_code == 0, done.output  # type: ignore[attr-defined]
    report = json.loads(done.stdout)  # type: ignore[attr-defined]
    assert report.keys() >= KEYS
    assert (report["status"], report["exit_code"], report["signal"]) == ("error", 3, None)
    assert report["stdout"] == {"head": "hello=you id\n", "tail": "hello=you id\n", "bytes": 13}
    assert report["submission"] == {"state": "ok", "reason": None, "bytes": 5}
    assert (tmp_path / "kept.csv").read_text() == "id\n1\n"


def test_run_with_milestones(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import csv\nprint('imported packages')\nraise SystemExit(1)\n")
    done = invoke("run", str(program), *BASE, "--instrument", "ast", "--json")
    report = json.loads(done.stdout)  # type: ignore[attr-defined]
    assert report["milestones"] == ["imported packages"]
    assert report["stdout"]["tail"] == "imported packages\n"  # the program's own line; the inserted one is gone


def test_run_for_people(program: Path, tmp_path: Path) -> None:
    done = invoke("run", str(program), *BASE, "--inputs", str(tmp_path / "inputs"), "--env", "GREETING=\x1b[31mred")
    assert "red id" in done.stdout  # type: ignore[attr-defined]
    assert "\x1b" not in done.stdout  # type: ignore[attr-defined]
    assert "error, exit code 3" in done.stdout  # type: ignore[attr-defined]


def test_infrastructure_failure_is_exit_3(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, *_: object, **__: object) -> None:
        raise InfraError("the disk is gone")

    from mlrl_core.sandbox import opening

    monkeypatch.setattr(opening, "_run_ordinary_program", lambda sandbox: None)
    monkeypatch.setattr(opening, "preflight", lambda *_: [])
    monkeypatch.setattr(LocalSandbox, "run", fail)
    done = invoke("run", str(program), *BASE, "--json")
    assert done.exit_code == 3  # type: ignore[attr-defined]
    report = json.loads(done.stdout)  # type: ignore[attr-defined]
    assert (report["status"], report["detail"]) == ("infra_error", "the disk is gone")
    assert report.keys() >= KEYS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no-such.py", *BASE], "no-such.py: No such file or directory"),
        (["run", __file__, *BASE, "--env", "NOVALUE"], "--env NOVALUE: write it as NAME=value"),
        (["run", __file__, *BASE, "--inputs", "/no/such"], "give a folder with the public data"),
        (["run", __file__, *BASE, "--set", "sandbox.memroy_mb=1"], "did you mean 'sandbox.memory_mb'?"),
        (["run", __file__, *BASE, "--set", "sandbox.slots=4000"], "lower sandbox.memory_mb or sandbox.slots"),
        (["run", __file__, "--backend", "podman"], "sandbox.backend"),
        (["build", "huge"], "there is no image 'huge'"),
        (["check", "--backend", "docker", "--set", "sandbox.engine_url=unix:///no/such"], "no docker engine answers"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    done = invoke(*arguments)
    assert isinstance(done.exception, MlrlError), done.output  # type: ignore[attr-defined]
    assert message in str(done.exception)  # type: ignore[attr-defined]
    assert "\n" not in str(done.exception)  # type: ignore[attr-defined]


def test_check_names_the_defences() -> None:
    done = invoke("check", *BASE[:2], "--set", "sandbox.memory_mb=256", "--set", "sandbox.slots=1", "--json")
    report = json.loads(done.stdout)  # type: ignore[attr-defined]
    assert "bubblewrap" in report["sandbox"]
    assert "fork bomb: held" in report["checks"]


def test_sweep_removes_what_a_dead_worker_left(own_runtime_folder: Path) -> None:
    from mlrl_core.sandbox.helper import linux

    left = own_runtime_folder / "instances" / "999999999-1-abc"
    (left / "run" / "out").mkdir(parents=True)
    if os.geteuid() == 0:
        linux.mount_tmpfs(str(left / "run" / "out"), size=1 << 20, mode=0o700, owner=1234)
    done = invoke("sweep", "--engine", "unix:///no/such", "--json")
    swept = json.loads(done.stdout)  # type: ignore[attr-defined]
    assert str(left) in swept["folders"]
    assert swept["problems"] == []
    assert not left.exists()
    if os.geteuid() == 0:
        assert swept["mounts"] == [str(left / "run" / "out")]


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup/pids").is_dir(), reason="needs root and version 1 control groups"
)
def test_sweep_ends_what_a_dead_helper_left_in_its_group() -> None:
    """bubblewrap's child can survive its parent's SIGKILL, waiting for it for ever, before any program runs."""
    group = Path(f"/sys/fs/cgroup/pids/{PREFIX}999999999-1-abc")
    foreign = Path("/sys/fs/cgroup/pids/mlrl-1-999999999-1-abc")  # of another process namespace
    group.mkdir()
    foreign.mkdir()
    left = subprocess.Popen(["sleep", "600"])
    try:
        (group / "cgroup.procs").write_text(str(left.pid))
        swept = json.loads(invoke("sweep", "--engine", "unix:///no/such", "--json").stdout)  # type: ignore[attr-defined]
        assert str(group) in swept["groups"]
        assert left.wait(10) == -signal.SIGKILL
        assert not group.exists()
        assert foreign.exists()
    finally:
        foreign.rmdir()
        left.kill()
        left.wait(10)
