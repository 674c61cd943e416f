"""Several servers started by one run: apart from one another, one may die, and all end with it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlrl_core.config import load_config
from mlrl_core.generation import GenerationRequest
from mlrl_core.generation.vllm.generator import VllmGenerator
from tests.mlrl_core.generation.vllm import fake_program
from tests.mlrl_core.generation.vllm.test_adapters import write
from tests.models import TINY, save_llama

PLACES = ["cuda:0", "cuda:1", "cpu:0", "cpu:1"]


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VllmGenerator]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    backbone = save_llama(tmp_path / "backbone", TINY | {"max_position_embeddings": 1024})
    (tmp_path / "seen").mkdir()
    command = [sys.executable, fake_program.__file__, str(tmp_path / "seen")]
    settings = [f"generation.servers={json.dumps(PLACES)}", f"generation.command={json.dumps(command)}"]
    settings += [f"policy.model={backbone}", "policy.lora.r=8", "generation.start_deadline_s=60"]
    config = load_config("nano", ["generation.backend=vllm", "generation.max_in_flight=8", *settings])
    made = VllmGenerator(config, backbone, tmp_path / "run")
    made.load_version(1, write(tmp_path / "00001" / "adapter"))
    yield made
    made.close()


def seen(folder: Path) -> list[dict[str, Any]]:
    """What each server was started with, in the order of the configuration."""
    found = [json.loads(path.read_text()) for path in (folder / "seen").iterdir()]
    ports = [each["arguments"][each["arguments"].index("--port") + 1] for each in found]
    assert len(set(ports)) == len(ports)
    return found


def test_each_has_its_own_device_cores_port_and_log(generator: VllmGenerator, tmp_path: Path) -> None:
    started = [each["environment"] for each in seen(tmp_path)]
    assert len(started) == 4
    on_gpu = [each for each in started if "VLLM_CPU_OMP_THREADS_BIND" not in each]
    assert sorted(each["CUDA_VISIBLE_DEVICES"] for each in on_gpu) == ["5", "7"]
    on_cpu = [each for each in started if "VLLM_CPU_OMP_THREADS_BIND" in each]
    assert sorted(each["VLLM_CPU_OMP_THREADS_BIND"] for each in on_cpu) == ["0", "1"]
    assert len({server.url for server in generator.servers}) == 4
    logs = sorted(path.name for path in (tmp_path / "run" / "vllm").iterdir())
    assert logs == [f"server-{number}.log" for number in range(4)]


def test_a_wave_outlives_one_of_them_which_comes_back_whole(generator: VllmGenerator, tmp_path: Path) -> None:
    requests = [GenerationRequest(f"s{number}", (1, 2), number) for number in range(200)]
    stream = generator.generate(requests, 1)
    answers = [next(stream)]
    (victim,) = [each for each in seen(tmp_path) if each["environment"]["CUDA_VISIBLE_DEVICES"] == "7"][:1]
    os.kill(victim["pid"], signal.SIGKILL)
    answers += list(stream)
    assert sorted(each.solution_id for each in answers) == sorted(each.solution_id for each in requests)
    assert sorted(server.starts for server in generator.servers) == [1, 1, 1, 2]
    names = [set(server.client.models()[1]) for server in generator.servers]
    assert names == [names[0]] * 4
    assert len(names[0]) == 1
    (again,) = [each for each in generator.servers if each.starts == 2]
    assert again.process is not None
    assert again.process.spec.device == "cuda:1"


def test_all_of_them_end(generator: VllmGenerator, tmp_path: Path) -> None:
    processes = [psutil.Process(each["pid"]) for each in seen(tmp_path)]
    generator.close()
    assert psutil.wait_procs(processes, timeout=5)[1] == []
