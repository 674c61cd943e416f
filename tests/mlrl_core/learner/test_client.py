"""The real process: it answers, dies with its parent, and never leaves a wait without an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.learner.batch_file import BatchRow, write_batch
from mlrl_core.learner.client import LearnerClient
from mlrl_core.learner.session import Session
from mlrl_core.learner.versions import VersionStore

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]


class Stub(LearnerClient):
    """A client whose worker is a few lines of Python with ``session`` (a Path) in scope: no model to load."""

    program = ""

    def _command(self, session: Session) -> list[str]:
        start = "import json, os, pathlib, signal, sys, time\n"
        return [sys.executable, "-c", f"{start}session = pathlib.Path({str(session.folder)!r})\n{PUT}{self.program}"]


PUT = """
def put(name, text="{}"):
    (session / "partial").write_text(text)
    (session / "partial").rename(session / name)
"""
READY = 'put("ready.json")\n'


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


def test_updates_crash_and_go_on_in_the_real_process(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, tmp_path: Path
) -> None:
    """One story, because every start loads torch: update, repeat, refuse, SIGKILL, resume, second client, end."""
    config = make_config()
    batches = [tmp_path / f"batch-{number}.parquet" for number in (1, 2, 3)]
    digests = [write_batch(path, make_rows([4, 3, 6], seed=n, version=n)) for n, path in enumerate(batches)]
    with LearnerClient(tmp_path / "run", config, backbone) as client:
        assert client.status()["state"] == "idle"
        first = client.update(1, batches[0], digests[0], 0)
        assert first.version == 1
        assert first.version_dir == tmp_path / "run" / "versions" / "00001"
        assert (first.version_dir / "adapter" / "adapter_config.json").exists()
        assert first.metrics["learner/tokens"] == 13
        again = [client.update("1", batches[0], digests[0], 0) for _ in range(5)]
        assert all(result.metrics == first.metrics for result in again)
        overhead = [result.timings["call_s"] - result.timings["total_s"] for result in [first, *again]]
        assert min(overhead) < 0.2  # the bar for what calling costs; the others may have waited for a core
        with pytest.raises(MlrlError, match="is for version 5"):
            client.update(2, batches[1], digests[1], 5)

        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # so that the request is pending when the worker dies
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(InfraError, match="ended with status -9"):
            client.update(2, batches[1], digests[1], 1)
        assert client.status()["state"] == "stopped"

        second = client.update(2, batches[1], digests[1], 1)
        assert second.version == 2
        worker = client.pid
        assert worker is not None
        spent = psutil.Process(worker).cpu_times()
        assert spent.user + spent.system < 15  # the bar for restart to first update, whatever else the machine does
    assert gone(worker, 1)
    assert [m.batch_id for m in VersionStore(tmp_path / "run").chain()] == [None, "1", "2"]
    client.kill()  # again: nothing to do


def test_the_worker_dies_with_a_killed_client(tmp_path: Path, backbone: Path) -> None:
    program = f"""
from pathlib import Path
from mlrl_core.config import load_config
from mlrl_core.learner.client import LearnerClient
client = LearnerClient(Path({str(tmp_path / "run")!r}), load_config("nano"), Path({str(backbone)!r}))
client.start()
print(client.pid, flush=True)
import time; time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
    finally:
        parent.kill()
        parent.wait(10)
    assert gone(pid, 5)


@pytest.mark.slow
def test_a_group_of_two_dies_and_goes_on_as_one(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, tmp_path: Path
) -> None:
    """Two ranks under torchrun: update, SIGKILL one rank, go on, SIGKILL the launcher, then go on with one process."""
    run = tmp_path / "run"
    batches = [tmp_path / f"batch-{number}.parquet" for number in (1, 2, 3)]
    digests = [write_batch(path, make_rows([4, 3, 6], seed=n, version=n)) for n, path in enumerate(batches)]
    with LearnerClient(run, make_config("learner.ranks=2"), backbone) as client:
        assert client.update(1, batches[0], digests[0], 0).version == 1
        ranks = client.processes()
        assert len(ranks) == 2
        ranks[1].kill()
        # Which is seen first, the end of the group or the other rank's broken connection, is chance.
        with pytest.raises(InfraError, match=r"learner (ended|failed in update 2)"):
            client.update(2, batches[1], digests[1], 1)
        assert not any(rank.is_running() for rank in ranks)
        assert client.update(2, batches[1], digests[1], 1).version == 2
        ranks = client.processes()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        assert not psutil.wait_procs(ranks, timeout=5)[1]
    with LearnerClient(run, make_config(), backbone) as client:
        assert client.update(3, batches[2], digests[2], 2).version == 3
    assert [m.world_size for m in VersionStore(run).chain()] == [2, 2, 2, 1]


def test_two_learners_on_one_run(
    backbone: Path, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlrl_core.learner import worker
    from mlrl_core.learner.worker import Worker

    monkeypatch.setattr(worker, "LOCK_WAIT_S", 0.2)
    workers = [Worker.__new__(Worker), Worker.__new__(Worker)]
    (tmp_path / "learner").mkdir()
    for each in workers:
        each.run_dir = tmp_path
    held = workers[0]._lock()
    with pytest.raises(MlrlError, match="another learner trains this run"):
        workers[1]._lock()
    os.close(held)
    os.close(workers[1]._lock())


def test_a_mistake_in_the_worker_is_a_mistake_here(make_config: MakeConfig, tmp_path: Path) -> None:
    client = Stub(tmp_path, make_config(), tmp_path)
    client.program = """put("mistake.json", '{"message": "the run is damaged"}')\nsys.exit(2)"""
    with pytest.raises(MlrlError, match=r"^the run is damaged$"):
        client.start()
    assert client.pid is None


def test_a_dying_worker_is_reported_with_its_last_words(make_config: MakeConfig, tmp_path: Path) -> None:
    client = Stub(tmp_path, make_config(), tmp_path)
    client.program = "sys.exit('the disk is on fire')"
    for _ in range(4):
        with pytest.raises(InfraError, match="the disk is on fire"):
            client.start()
    with pytest.raises(MlrlError, match="died 4 times within an hour"):
        client.start()


def test_a_worker_ends_after_its_share_of_updates_and_that_is_no_death(make_config: MakeConfig, tmp_path: Path) -> None:
    client = Stub(tmp_path, make_config("learner.max_updates_per_process=2"), tmp_path)
    client.program = (
        READY
        + """
answer = {"status": "ok", "version": 1, "version_dir": ".", "metrics": {}, "timings": {}}
for number in (1, 2):
    while not (session / f"request-{number:06d}.json").exists():
        if not os.path.exists(f"/proc/{os.getppid()}"):
            sys.exit()
        time.sleep(0.01)
    put(f"answer-{number:06d}.json", json.dumps(answer))
"""
    )
    pids = set()
    for _ in range(5):
        client.start()
        pids.add(client.pid)
        client.update(1, tmp_path / "b", "", 0)
        assert client.pid is not None
        client.update(2, tmp_path / "b", "", 1)
        assert client.pid is None
    assert len(pids) == 5


@pytest.mark.parametrize(("key", "ready"), [("start_deadline_s", ""), ("update_deadline_s", READY)])
def test_every_wait_has_an_end_and_ends_the_worker(
    make_config: MakeConfig, tmp_path: Path, key: str, ready: str
) -> None:
    client = Stub(tmp_path, make_config(f"learner.{key}=0.5"), tmp_path)
    client.program = f"{ready}signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsys.stdin.read()"
    began = time.monotonic()
    with pytest.raises(InfraError, match=r"took longer than 0\.5 s"):
        client.update(1, tmp_path / "b", "", 0)
    assert time.monotonic() - began < 10
    assert client.pid is None


def test_a_worker_that_ignores_everything_is_killed(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlrl_core.learner import client as module

    monkeypatch.setattr(module, "END_S", 0.3)
    client = Stub(tmp_path, make_config(), tmp_path)
    client.program = READY + "time.sleep(100)"
    client.start()
    pid = client.pid
    client.kill()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_worker_without_a_heartbeat_hangs(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlrl_core.learner import client as module

    monkeypatch.setattr(module, "HANG_S", 0.3)
    client = Stub(tmp_path, make_config(), tmp_path)
    client.program = READY + 'put("heartbeat.json")\nsys.stdin.read()'
    with pytest.raises(InfraError, match="hangs: no sign of life"):
        client.update(1, tmp_path / "b", "", 0)


def test_kill_from_another_thread_ends_a_waiting_update(make_config: MakeConfig, tmp_path: Path) -> None:
    client = Stub(tmp_path, make_config(), tmp_path)
    client.program = READY + "sys.stdin.read()"
    client.start()
    threading.Timer(0.3, client.kill).start()
    with pytest.raises(InfraError, match="ended with status 0 while it had to answer update 1"):
        client.update(1, tmp_path / "b", "", 0)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_worker(make_config: MakeConfig, tmp_path: Path) -> None:
    client = Stub(tmp_path, make_config(), tmp_path)
    client.program = READY + "sys.stdin.read()"
    client.start()
    pid = client.pid
    assert pid is not None
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        client.update(1, tmp_path / "b", "", 0)
    assert not psutil.pid_exists(pid)
