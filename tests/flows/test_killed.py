"""Kill a run at any moment and go on: nothing is lost, nothing is applied twice, the adapters are the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.state import read_state
from tasks.resources import registered
from tests.fakes import fake_resources
from tests.flows.conftest import make_run

ROOT = Path(__file__).parents[2]
TWO_STEP = ("improve.improve_prob=0.5", "improve.episode=two_step")


@pytest.fixture
def environment(prefect_server: str) -> dict[str, str]:
    return {**os.environ, "PREFECT_API_URL": prefect_server, "PYTHONPATH": str(ROOT)}


def _start(run: RunDirectory, environment: dict[str, str], delay_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.flows.killed_run", str(run.path), str(delay_s)]
    log = (run.path.parent / f"{run.key}.log").open("ab")
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)


def _wait_for(run: RunDirectory, pattern: str, child: subprocess.Popen[bytes], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not list(run.path.glob(pattern)):
        assert child.poll() is None, (run.path.parent / f"{run.key}.log").read_text()[-2000:]
        assert time.monotonic() < end, f"{pattern} did not appear"
        time.sleep(0.01)


def _undisturbed(path: Path, *overrides: str) -> RunDirectory:
    from flows.train import train

    run = make_run(path, *overrides)
    with registered(fake_resources(run)):
        train(run_dir=str(run.path))
    return run


def _same(run: RunDirectory, other: RunDirectory) -> None:
    for n in range(4):
        assert (run.version(n) / "adapter" / "adapter.bin").read_bytes() == (
            other.version(n) / "adapter" / "adapter.bin"
        ).read_bytes(), f"version {n}"
    mine, theirs = ExperienceStore(run), ExperienceStore(other)
    assert mine.waves() == theirs.waves() == [1, 2, 3]
    for wave in mine.waves():
        assert [(r.solution.solution_id, r.solution.code, r.outcome, r.reward) for r in mine.read(wave)] == [
            (r.solution.solution_id, r.solution.code, r.outcome, r.reward) for r in theirs.read(wave)
        ]
    assert run.published_versions() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("moment", "overrides"),
    [
        ("work/wave=00001/*/execution.json", ()),
        ("experiences/wave=00002/*", ()),
        ("batches/00002.*", ()),
        ("experiences/wave=00001/*-000.parquet", TWO_STEP),  # first actions end
        ("work/wave=00002/*-00[135]/solution.json", TWO_STEP),  # improvements are sampled
        ("experiences/wave=00002/*-00[135].parquet", TWO_STEP),  # some of them have ended
    ],
)
def test_killed_and_resumed_is_as_if_left_alone(
    tmp_path: Path, environment: dict[str, str], moment: str, overrides: tuple[str, ...]
) -> None:
    run = make_run(tmp_path / "killed", *overrides)
    child = _start(run, environment, 0.2)
    _wait_for(run, moment, child)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(10)
    graded = {row.solution.solution_id for wave in (1, 2, 3) for row in ExperienceStore(run).read(wave)}
    again = _start(run, environment, 0.0)
    assert again.wait(120) == 0
    _same(run, _undisturbed(tmp_path / "calm", *overrides))
    ids = [row.solution.solution_id for wave in (1, 2, 3) for row in ExperienceStore(run).read(wave)]
    assert len(ids) == len(set(ids)) == 18
    assert graded <= set(ids)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), TWO_STEP])
def test_killed_at_random_moments(tmp_path: Path, environment: dict[str, str], overrides: tuple[str, ...]) -> None:
    rng = random.Random(7)
    run = make_run(tmp_path / "killed", *overrides)
    for _ in range(8):
        child = _start(run, environment, 0.3)
        time.sleep(3 + rng.random() * 5)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
    assert _start(run, environment, 0.0).wait(120) == 0
    _same(run, _undisturbed(tmp_path / "calm", *overrides))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_soon_and_it_can_go_on(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    run = make_run(tmp_path / "stopped")
    child = _start(run, environment, 1.0)
    _wait_for(run, "work/wave=00001/*/program.json", child)
    sent = time.monotonic()
    os.kill(child.pid, number)
    assert child.wait(15) == 3
    assert time.monotonic() - sent < 15
    assert read_state(run).status == "interrupted"
    assert "CANCELLED" in (tmp_path / "stopped.log").read_text()
    assert not run.is_owned()
    assert _start(run, environment, 0.0).wait(120) == 0
    assert read_state(run).status == "finished"
    _same(run, _undisturbed(tmp_path / "calm"))


def test_what_does_not_listen_is_ended_hard(tmp_path: Path) -> None:
    run = make_run(tmp_path / "deaf")
    script = (
        "import subprocess, sys, threading; from pathlib import Path\n"
        "import flows.stopping as stopping; from mlrl_core.experience import RunDirectory\n"
        "stopping._GRACE_S = 1.0\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "with stopping.stoppable(threading.Event(), RunDirectory(Path(sys.argv[1]))):\n"
        "    print(child.pid, flush=True)\n"
        "    lock = threading.Lock(); lock.acquire()\n"
        "    while True: lock.acquire(timeout=5)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stderr is not None
    sleeper = int(child.stdout.readline())
    child.send_signal(signal.SIGTERM)
    assert child.wait(15) == 130
    assert "--resume" in child.stderr.read().decode()
    assert read_state(run).status == "interrupted"
    end = time.monotonic() + 5
    while Path(f"/proc/{sleeper}").exists() and "Z" not in Path(f"/proc/{sleeper}/stat").read_text().split()[2]:
        assert time.monotonic() < end, "a child is left"
        time.sleep(0.05)
