"""A worker, a helper or a run that ends early: whatever is killed, nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
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
config = SandboxConfig(backend=sys.argv[1], engine_url=sys.argv[2], time_limit_s=600, memory_mb=256, slots=1)
sandbox = open_sandbox(config, run_key="killed")
print("open", flush=True)
sandbox.run("import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(300)",
            Path(sys.argv[3]), collect_to=Path(sys.argv[4]))
"""


def wait_for_family(pid: int, size: int) -> list[int]:
    """The processes below ``pid`` when there are at least ``size``."""
    end = time.monotonic() + 30
    while len(family := descendants_of(pid)) < size:
        assert time.monotonic() < end, f"only {len(family)} processes started"
        time.sleep(0.05)
    return family


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_nothing_outlives_a_killed_worker(backend: str, world: World, own_runtime_folder: Path, tmp_path: Path) -> None:
    """The helper sees its parent's end and takes the program, mounts and groups with it."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, backend, "", str(world.inputs), str(tmp_path / "s")], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"open\n"
    family = wait_for_family(worker.pid, 3)  # helper, program, its child
    groups = [name for name in own_groups() if any(f"{PREFIX}{pid}-" in name for pid in family)]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
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
    end = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
    assert set(descendants_of(os.getpid())) <= before
    assert [name for name in groups if Path("/sys/fs/cgroup", name).exists()] == []
    result = sandbox.run("print('next')", world.inputs, collect_to=tmp_path / "b")  # a new helper takes over
    assert result.stdout.tail == "next\n"


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

    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, "docker", engine, str(world.inputs), str(tmp_path / "s")],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"open\n"
    client = docker.DockerClient(base_url=engine)
    wanted = {"label": ["mlrl.run=killed"], "status": ["running"]}
    end = time.monotonic() + 20
    while not client.api.containers(filters=wanted) and time.monotonic() < end:
        time.sleep(0.1)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    assert client.api.containers(filters=wanted), "the container ended by itself: nothing to sweep"
    swept = sweep(engine)
    assert swept.problems == []
    assert len(swept.containers) == 1
    assert len(swept.mounts) == 1
    assert client.api.containers(all=True, filters={"label": ["mlrl.run=killed"]}) == []
    assert sweep(engine).total() == 0
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
