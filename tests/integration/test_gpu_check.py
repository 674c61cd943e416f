"""The script for a machine with a GPU works before there is one: here on the CPU with a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import vllm_fakes as fakes

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


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    for options, words in (([], "no GPU"), (["--device", "cpu", "--model", str(tmp_path)], "no config.json")):
        command = [sys.executable, "-m", "tests.gpu_check", *options]
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
