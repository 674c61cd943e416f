"""``deployments/prefect.yaml``: what it says, and that a server takes it and a worker runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deployments" / "prefect.yaml"


def _deployments() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in yaml.safe_load(FILE.read_text())["deployments"]}


def test_nightly_is_in_utc_and_never_joins_a_running_night() -> None:
    nightly = _deployments()["nightly"]
    assert [(s["cron"], s["timezone"]) for s in nightly["schedules"]] == [("0 4 * * *", "UTC")]
    assert nightly["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


@pytest.mark.parametrize("name", ["train", "nightly"])
def test_entrypoints_are_flows_that_take_the_parameters(name: str) -> None:
    import importlib
    import inspect

    deployment = _deployments()[name]
    path, function = deployment["entrypoint"].split(":")
    flow = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), function)
    assert set(deployment["parameters"]) <= set(inspect.signature(flow.fn).parameters)
    assert (ROOT / path).is_file()


def _prefect(environment: dict[str, str], *arguments: str, limit_s: float = 120) -> str:
    command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.integration
def test_a_server_takes_the_deployments_and_a_worker_runs_train(tmp_path: Path) -> None:
    """The real flow under a real worker, with one tiny step. The nano policy's warm start is cut to a minimum: what
    it writes then is mostly no program, which is enough for the way through."""
    from flows.server import prefect_api

    patch = pytest.MonkeyPatch()
    patch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    patch.delenv("PREFECT_API_URL", raising=False)
    run = tmp_path / "runs" / "deployed"
    overrides = ["steps=1", "wave_size=4", "batch.size=4", "warmstart.demonstrations=64", "warmstart.epochs=1"]
    overrides += ["sampling.max_new_tokens=40", "tracking.enabled=false"]
    (tmp_path / "home").mkdir()
    with prefect_api(tmp_path / "server.log") as url:
        environment = {**os.environ, "PREFECT_API_URL": url, "MLRL_HOME": str(ROOT)}
        _prefect(environment, "work-pool", "create", "gpu-pool", "--type", "process")
        _prefect(environment, "deploy", "--prefect-file", str(FILE), "--all")
        parameters = json.dumps({"run_dir": str(run), "overrides": overrides})
        _prefect(environment, "deployment", "run", "train/train", "--params", parameters)
        log = (tmp_path / "worker.log").open("w")
        command = ["worker", "start", "--pool", "gpu-pool", "--limit", "1", "--run-once"]
        worker = subprocess.Popen(
            [sys.executable, "-m", "prefect", *command], env=environment, cwd=ROOT, stdout=log, stderr=log
        )
        try:
            end = time.monotonic() + 300
            while not (run / "versions" / "00001" / "DONE").exists():
                assert time.monotonic() < end, (tmp_path / "worker.log").read_text()[-3000:]
                time.sleep(1)
            worker.wait(90)
        finally:
            if worker.poll() is None:
                worker.terminate()
                worker.wait(60)
        assert "Completed" in (tmp_path / "worker.log").read_text()
    patch.undo()
    assert json.loads((run / "state.json").read_text())["status"] == "finished"
