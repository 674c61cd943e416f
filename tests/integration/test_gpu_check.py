"""The script for a machine with a GPU works before there is one: here on the CPU with a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlrl_core.generation.vllm import process
from tests.gpu_check import LIMIT_S, configuration, examine
from tests.integration import vllm_fakes as fakes
from tests.models import save_llama

ROOT = Path(__file__).parents[2]


@pytest.mark.vllm
@pytest.mark.integration
def test_it_runs_on_a_cpu_and_every_check_passes(tmp_path: Path) -> None:
    fakes.require_vllm()
    command = [sys.executable, "-m", "tests.gpu_check", "--device", "cpu", "--shape", "tiny", "--dtype", "float32"]
    command += ["--responses", "8", "--tokens", "32", "--out", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=420)
    result = json.loads((tmp_path / "gpu.json").read_text())
    failed = {name: found for name, found in result["checks"].items() if not found["ok"]}
    assert not failed
    assert done.returncode == 0, done.stderr
    update = result["checks"]["one update, log-probabilities agree"]
    assert 0 <= update["sampling/abs_log_prob_diff"] < 1e-3
    assert update["learner/tokens_per_s"] > 0
    assert result["checks"]["wave of version 1, after the guard"]["tok_s"] > 0
    assert len(result["checks"]) == 10


def test_one_device_is_shared_between_server_and_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "has_gpu", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    backbone = save_llama(tmp_path / "model")
    config = configuration("cuda", backbone, "bfloat16", 32)
    config = config.model_copy(update={"generation": config.generation.model_copy(update={"python": sys.executable})})
    spec = process.ServerSpec.of(config, config.generation.servers[0], 0, backbone)
    arguments = spec.arguments(8000)
    assert [arguments[i + 1] for i, each in enumerate(arguments) if each == "--gpu-memory-utilization"] == ["0.4"]
    assert spec.environment()["CUDA_VISIBLE_DEVICES"] == "5"
    assert (config.learner.device, config.learner.ranks) == ("cuda", 1)
    assert LIMIT_S + 60 <= 7 * 60


def test_what_takes_too_long_is_ended_and_the_rest_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never comes up: a tenth of a second here, six minutes there."""
    never = [sys.executable, "-c", "import time; time.sleep(300)"]
    monkeypatch.setattr(process.ServerSpec, "arguments", lambda spec, port: never)
    monkeypatch.setattr(process, "find_python", lambda configured: Path(sys.executable))
    began = time.monotonic()
    result = examine("cpu", "tiny", None, "float32", 8, 32, tmp_path, limit_s=0.1)
    assert time.monotonic() - began < 60
    assert (result["ok"], result["in_time"]) == (False, False)
    assert list(result["checks"]) == ["server starts"]
    assert "given up" in result["checks"]["server starts"]["error"]
    json.dumps(result)


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    for options, words in (([], "no GPU"), (["--device", "cpu", "--model", str(tmp_path)], "no config.json")):
        command = [sys.executable, "-m", "tests.gpu_check", *options]
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
