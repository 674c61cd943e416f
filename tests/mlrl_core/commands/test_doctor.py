"""What the doctor says is what a run with the same settings would meet."""

from __future__ import annotations

import json
import os

import psutil
import pytest

from mlrl_core.commands import doctor as doctors
from mlrl_core.commands.hardware import Gpu
from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError

GIB = 1 << 30


class _Machine:
    """As many cores and GiB as wanted, in the eyes of the doctor and of the sandbox."""

    def __init__(self, patch: pytest.MonkeyPatch, cores: int, gib: int) -> None:
        memory = psutil.virtual_memory()._replace(total=gib * GIB, available=gib * GIB)
        patch.setattr(psutil, "virtual_memory", lambda: memory)
        patch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
        sysconf = os.sysconf
        pages = {"SC_PHYS_PAGES": gib * GIB // 4096, "SC_PAGE_SIZE": 4096}
        patch.setattr(os, "sysconf", lambda name: pages.get(name) or sysconf(name))


def test_slots_are_proposed_from_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    _Machine(monkeypatch, 96, 1152)
    said = doctors._machine(load_config("paper"))
    assert said.startswith("96 cores, 1152.0 of 1152.0 GB free, execution slots: 71")  # as the sandbox takes them for 0
    assert "sandbox.slots=64 would leave room" in said
    assert doctors._machine(load_config("paper", ["sandbox.slots=64"])).endswith("execution slots: 64")
    with pytest.raises(MlrlError, match=r"100 slots of 16384 MiB don't fit .* sandbox\.slots=64$"):
        doctors._machine(load_config("paper", ["sandbox.slots=100"]))


def test_a_machine_too_small_for_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    _Machine(monkeypatch, 4, 8)
    with pytest.raises(MlrlError, match=r"1 slots of 16384 MiB don't fit .* lower sandbox\.memory_mb"):
        doctors._machine(load_config("paper"))


def test_settings_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("_packages", "_model", "_generation", "_space", "_competition", "_sandbox", "_prefect", "_mlflow"):
        monkeypatch.setattr(doctors, name, lambda config: "fine")
    _Machine(monkeypatch, 96, 1152)
    monkeypatch.setattr(doctors, "find_gpus", lambda: [Gpu(number, "A100", 40960) for number in range(4)])
    assert not doctors.doctor("paper", (), True)
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
    assert not found["gpus"]["ok"]
    proposal = [word for word in found["gpus"]["detail"].replace(", ", ",").split() if "=" in word]
    assert proposal == ["learner.ranks=2", 'generation.servers=["cuda:2","cuda:3"]']
    assert doctors.doctor("paper", proposal, False)
    said = capsys.readouterr().out
    assert (
        """next: mlrl train --profile paper --set learner.ranks=2 --set 'generation.servers=["cuda:2","cuda:3"]'"""
        in said
    )
    with pytest.raises(MlrlError, match=r"did you mean 'learner\.ranks'"):
        doctors.doctor("paper", ["learner.rank=2"], False)


def test_servers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    there = load_config("nano", ["generation.backend=vllm", 'generation.servers=["http://127.0.0.1:1"]'])
    with pytest.raises(MlrlError, match="does not answer"):
        doctors._generation(there)
    command = load_config("nano", ["generation.backend=vllm", 'generation.command=["run", "vllm"]'])
    assert doctors._generation(command) == "vLLM 0.32.0 on cpu, started by run vllm"
