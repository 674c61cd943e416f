"""A whole training run that samples by a vLLM server: the server dies, then the run does, and a resume finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mlrl_core.experience import ExperienceStore, RunDirectory
from tests.integration.vllm_fakes import require_vllm

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.vllm, pytest.mark.integration, pytest.mark.slow]

SETTINGS = [
    *("steps=3", "wave_size=8", "batch.size=8", "sandbox.time_limit_s=20", "generation.backend=vllm"),
    *(
        "generation.kv_cache_gb=1",
        "generation.start_deadline_s=540",
        "warmstart.demonstrations=64",
        "warmstart.epochs=1",
    ),
]


def _mlrl(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
    environment |= {"PREFECT_HOME": str(folder / "prefect"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mlrl_core.cli", "train", *arguments]
    with (folder / "out.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)


def _server(run: psutil.Process) -> psutil.Process | None:
    """The keeper of the run's vLLM server."""
    for child in run.children():
        if any(part.endswith("keeper.py") for part in child.cmdline()):
            return child
    return None


def _wait(folder: Path, process: subprocess.Popen[bytes], there: object, limit_s: float = 400) -> None:
    end = time.monotonic() + limit_s
    while not there():  # type: ignore[operator]
        assert process.poll() is None, (folder / "out.log").read_text()[-3000:]
        assert time.monotonic() < end, (folder / "out.log").read_text()[-3000:]
        time.sleep(0.1)


@pytest.mark.timeout(1800)
def test_a_run_outlives_its_server_and_itself(tmp_path: Path) -> None:
    require_vllm()
    path = tmp_path / "run"
    overrides = [part for setting in SETTINGS for part in ("--set", setting)]
    process = _mlrl(tmp_path, "--profile", "nano", "--run", str(path), *overrides)
    _wait(tmp_path, process, lambda: (path / "versions" / "00000" / "DONE").exists())
    run = RunDirectory.open(path)
    _wait(tmp_path, process, lambda: run.launches(1).exists())
    keeper = _server(psutil.Process(process.pid))
    assert keeper is not None
    keeper.children()[0].send_signal(signal.SIGKILL)
    _wait(tmp_path, process, lambda: 1 in run.published_versions())
    first = {row.solution.solution_id: row.solution for row in ExperienceStore(run).read(1)}
    assert len(first) == 8
    family = psutil.Process(process.pid).children(recursive=True)
    keeper = _server(psutil.Process(process.pid))
    assert keeper is not None
    servers = [keeper, *keeper.children(recursive=True)]
    process.kill()
    process.wait(10)
    assert psutil.wait_procs(servers, timeout=30)[1] == []
    assert [each for each in psutil.wait_procs(family, timeout=30)[1] if each.status() != "zombie"] == []

    again = _mlrl(tmp_path, "--resume", str(path))
    assert again.wait(900) == 0, (tmp_path / "out.log").read_text()[-3000:]
    assert run.published_versions() == [0, 1, 2, 3]
    store = ExperienceStore(run)
    for wave in (1, 2, 3):
        rows = store.read(wave)
        assert len(rows) == 8
        assert {row.solution.policy_version for row in rows} == {wave - 1}
        assert not [row for row in rows if row.outcome in ("infra_error", "cancelled")]
    kept = {row.solution.solution_id: row.solution for row in store.read(1)}
    assert {key: kept[key] for key in first} == first
    assert (path / "vllm" / "server-0.log").exists()
