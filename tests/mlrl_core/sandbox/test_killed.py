"""A worker, a helper or a run that ends early: whatever is killed, nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlrl_core.errors import InfraError
from mlrl_core.sandbox.helper.cgroups import PREFIX
from mlrl_core.sandbox.helper.linux import descendants_of
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, Opener, own_containers
from tests.mlrl_core.sandbox.expectations import stretch
from tests.mlrl_core.sandbox.world import World, own_groups

BACKENDS = ["bubblewrap", "docker", "process"]


WORKER = """
import sys, threading
from pathlib import Path
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.sandbox import open_sandbox
limit = float(sys.argv[5])
if sys.argv[1] == "engine volume":
    import dataclasses
    from mlrl_core.sandbox import docker_backend
    real = docker_backend.engine_info
    docker_backend.engine_info = lambda client: dataclasses.replace(real(client), local=False)
    sys.argv[1] = "docker"
config = SandboxConfig(backend=sys.argv[1], engine_url=sys.argv[2], time_limit_s=limit, memory_mb=256, slots=1)
sandbox = open_sandbox(config, run_key="killed")
print("open", flush=True)
sandbox.run(sys.argv[6], Path(sys.argv[3]), collect_to=Path(sys.argv[4]))
"""
PROGRAMS = {
    "daemon": "import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(300)",
    "stops the watchdog": "import os, signal, time\n"
    "for pid in (1, os.getppid()): os.kill(pid, signal.SIGSTOP)\n"
    "if os.fork() == 0: os.setsid()\ntime.sleep(300)",
}


def start_worker(
    backend: str, url: str, world: World, folder: Path, program: str = "daemon", limit_s: float = 600
) -> subprocess.Popen[bytes]:
    """A worker of its own that is about to run a program."""
    arguments = [backend, url, str(world.inputs), str(folder / "s"), str(limit_s), PROGRAMS[program]]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"open\n"
    return worker


def kill(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait(30)
    if worker.stdout:
        worker.stdout.close()


def wait_until(holds: Callable[[], object], patience_s: float) -> None:
    """Return when it holds, or when the patience is over: what must hold by then is the caller's to assert."""
    end = time.monotonic() + patience_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)


def wait_for_family(pid: int, size: int) -> list[int]:
    """The processes below ``pid`` when there are at least ``size``."""
    wait_until(lambda: len(descendants_of(pid)) >= size, 30)
    family = descendants_of(pid)
    assert len(family) >= size, f"only {len(family)} processes started"
    return family


def alive(pids: list[int]) -> list[int]:
    """Those that are still there."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("backend", "program"),
    [("bubblewrap", "daemon"), ("bubblewrap", "stops the watchdog"), ("process", "daemon")],
)
def test_nothing_outlives_a_killed_worker(
    backend: str, program: str, world: World, own_runtime_folder: Path, tmp_path: Path
) -> None:
    """The helper sees its parent's end and takes the program, mounts and groups with it."""
    worker = start_worker(backend, "", world, tmp_path, program)
    family = wait_for_family(worker.pid, 3)  # helper, program, its child
    groups = [name for name in own_groups() if any(f"{PREFIX}{pid}-" in name for pid in family)]
    kill(worker)
    wait_until(lambda: not alive(family), 10)
    assert alive(family) == []
    assert [name for name in groups if Path("/sys/fs/cgroup", name).exists()] == []


def test_a_killed_helper_is_an_infrastructure_error(world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests("bubblewrap", time_limit_s=20, pids=63)
    before = set(descendants_of(os.getpid()))
    failure: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.run("import time; time.sleep(15)", world.inputs, collect_to=tmp_path / "a")
        except InfraError as error:
            failure.append(error)

    sandbox.run("pass", world.inputs, collect_to=tmp_path / "a")
    with sandbox._lock:  # type: ignore[attr-defined]  # the helper that the next run will take
        helper = sandbox._idle[-1].pid  # type: ignore[attr-defined]
    assert helper > 1
    thread = threading.Thread(target=run)
    thread.start()
    family = wait_for_family(helper, 4)  # two of bwrap, watchdog, program
    groups = [name for name in own_groups() if f"{PREFIX}{helper}-" in name]
    os.kill(helper, signal.SIGKILL)
    thread.join(10)
    assert failure, "the run did not notice"
    wait_until(lambda: not alive(family), 5)
    assert alive(family) == []
    assert set(descendants_of(os.getpid())) <= before
    assert [name for name in groups if Path("/sys/fs/cgroup", name).exists()] == []
    result = sandbox.run("print('next')", world.inputs, collect_to=tmp_path / "b")  # a new helper takes over
    assert result.stdout.tail == "next\n"


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_run_leaves_nothing(world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run: the exception passes, the program is dead."""
    sandbox = open_for_tests("bubblewrap", time_limit_s=20)
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sandbox.run("import time; time.sleep(15)", world.inputs, collect_to=tmp_path / "a")
    assert time.monotonic() - began < 5 * stretch()
    assert own_containers() == []
    result = sandbox.run("print('next')", world.inputs, collect_to=tmp_path / "b")
    assert result.status == "ok"


def test_docker_container_of_a_killed_worker_is_swept(
    world: World, engine: str, own_runtime_folder: Path, tmp_path: Path
) -> None:
    import docker

    from mlrl_core.sandbox.sweep import sweep

    worker = start_worker("docker", engine, world, tmp_path)
    client = docker.DockerClient(base_url=engine)
    wanted = {"label": ["mlrl.run=killed"], "status": ["running"]}
    wait_until(lambda: client.api.containers(filters=wanted), 20)
    kill(worker)
    assert client.api.containers(filters=wanted), "the container ended by itself: nothing to sweep"
    swept = sweep(engine)
    assert swept.problems == []
    assert len(swept.containers) == 1
    assert len(swept.mounts) == 1
    assert client.api.containers(all=True, filters={"label": ["mlrl.run=killed"]}) == []
    assert sweep(engine).total() == 0
    client.close()


def test_the_holder_of_a_volume_ends_with_its_worker(
    world: World, engine: str, own_runtime_folder: Path, tmp_path: Path
) -> None:
    import docker

    from mlrl_core.sandbox.sweep import sweep

    worker = start_worker("engine volume", engine, world, tmp_path)
    client = docker.DockerClient(base_url=engine)

    def running() -> list[str]:
        found = client.api.containers(filters={"label": ["mlrl.run=killed"], "status": ["running"]})
        return sorted(name for each in found for name in each["Names"])

    wait_until(lambda: len(running()) >= 2, 30)
    assert [name.endswith("-hold") for name in running()] == [False, True]
    kill(worker)
    wait_until(lambda: not any(name.endswith("-hold") for name in running()), 15)
    assert [name.endswith("-hold") for name in running()] == [False]
    swept = sweep(engine)
    assert (swept.problems, len(swept.containers)) == ([], 2)
    assert not client.api.volumes(filters={"label": ["mlrl.run=killed"]})["Volumes"]
    client.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_close_ends_runs_in_progress(
    backend: str, world: World, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from mlrl_core.sandbox import open_sandbox

    url = request.getfixturevalue("engine") if backend == "docker" else ""
    config = PROGRAM_LIMITS.model_copy(update={"backend": backend, "engine_url": url, "time_limit_s": 60.0})
    sandbox = open_sandbox(config, run_key="close")
    failures: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.run("import time; time.sleep(50)", world.inputs, collect_to=tmp_path / "s")
        except InfraError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.5)
    began = time.monotonic()
    sandbox.close()
    thread.join(10)
    assert time.monotonic() - began < 8 * stretch()
    assert len(failures) == 1
    with pytest.raises(InfraError, match="closed"):
        sandbox.run("pass", world.inputs, collect_to=tmp_path / "s")
    assert own_containers() == []


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_container_ends_by_itself_when_its_worker_was_killed(
    program: str, world: World, engine: str, own_runtime_folder: Path, tmp_path: Path
) -> None:
    """Its pid 1 is the watchdog, which nobody inside can stop: the program's limit and 30 s."""
    import docker

    from mlrl_core.sandbox.sweep import sweep

    limit_s = 3.0
    worker = start_worker("docker", engine, world, tmp_path, program, limit_s)
    client = docker.DockerClient(base_url=engine)
    mine = {"label": ["mlrl.run=killed"]}
    wait_until(lambda: client.api.containers(filters=mine | {"status": ["running"]}), 20)
    began = time.monotonic()
    kill(worker)
    running = client.api.containers(filters=mine)
    wait_until(lambda: not client.api.containers(filters=mine), 2 * (limit_s + 30))
    lasted = time.monotonic() - began
    assert len(running) == 1
    assert 10 < lasted < limit_s + 30
    swept = sweep(engine)
    assert (swept.problems, len(swept.containers), len(swept.mounts)) == ([], 1, 1)
    client.close()
