"""Bubblewrap for a worker who is not root: no control groups, own user namespace, memory watched.

The test's own Python may lie in a folder that others can't enter, so this runs under the system's Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlrl_core.records import Execution, StreamCapture
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, unavailable
from tests.mlrl_core.sandbox.expectations import PROGRAMS, broken_promises, programs, read_program, stretch

USER = 1_989_999_999
ROOT = Path(__file__).parents[3]
SYSTEM_PYTHON = "/usr/bin/python3"
STRETCH = stretch()
SHORT_LIMIT_S = 4.0 * STRETCH
# Those that behave differently without control groups or as another user; the others differ in nothing that this
# run could change.
CHOSEN = [program.name for program in programs() if program.name.startswith("contain_")]
CHOSEN += ["life_ok", "life_hold_stdout", "life_kill_watchdog", "life_self_sigkill", "life_stop_watchdog"]
CHOSEN += ["life_zombies", "out_flood_one_line", "sub_deep_tree", "sub_out_dir_mode_000", "sub_symlink", "time_busy"]


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Execution]]:
    if os.geteuid() != 0:
        unavailable("only root can become another user here; as an ordinary user the whole suite does this")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not shutil.which("bwrap") or not Path(f"{SYSTEM_PYTHON}{version.removeprefix('3')}").exists():
        unavailable(f"needs bwrap and the system's own Python {version}")
    folder = Path(tempfile.mkdtemp(prefix="mlrl-user-", dir="/tmp"))
    try:
        yield _run_as_user(folder)
        assert not (folder / "marker").exists()
        assert not list((folder / "run" / "instances").iterdir()), "the sandbox's folder stayed"
    finally:
        shutil.rmtree(folder)


def _run_as_user(folder: Path) -> dict[str, Execution]:
    """Everything in one process of the user's: name -> result."""
    for name in ("public", "private"):
        (folder / name).mkdir()
    (folder / "public" / "train.csv").write_text("id,y\n1,0\n")
    (folder / "private" / "answers.csv").write_text("MLRL-PRIVATE-" + "ANSWERS-TOKEN\n")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)
    config = PROGRAM_LIMITS.model_copy(update={"backend": "bubblewrap", "time_limit_s": SHORT_LIMIT_S})
    env = {"MLRL_PROBE_PRIVATE": str(folder / "private"), "MLRL_PROBE_MARKER": str(folder / "marker")}
    site = next(path for path in sys.path if path.endswith("site-packages"))

    def become() -> None:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)

    module = [SYSTEM_PYTHON, "-B", "-m", "tests.mlrl_core.sandbox.as_user"]
    done = subprocess.run(
        [*module, str(PROGRAMS), str(folder), config.model_dump_json(), json.dumps(env), *CHOSEN],
        preexec_fn=become,
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT}:{site}",
            "HOME": str(folder),
            "MLRL_RUNTIME_DIR": str(folder / "run"),
            "MLRL_TEST_SECRET": "MLRL-PARENT-" + "SECRET-TOKEN",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Execution] = {}
    for line in done.stdout.splitlines()[1:]:
        values = json.loads(line)
        streams = {name: StreamCapture(**values.pop(name)) for name in ("stdout", "stderr")}
        name = values.pop("name")
        found[name] = Execution(**values, **streams)
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_program_ends_as_promised(name: str, results: dict[str, Execution]) -> None:
    result = results[name]
    broken = broken_promises(read_program(PROGRAMS / f"{name}.py"), result, SHORT_LIMIT_S, STRETCH)
    assert broken == [], (result.stdout.tail[-1000:], result.stderr.tail[-1000:])
    assert result.backend == "bubblewrap"
    assert result.cpu_s is not None
    assert result.peak_memory_mb
