"""Many runs with random cancellations and kills: every result typed, nothing left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlrl_core.errors import InfraError
from mlrl_core.records import ExecutionStatus
from mlrl_core.sandbox.helper.linux import descendants_of
from tests.mlrl_core.sandbox.conftest import Opener
from tests.mlrl_core.sandbox.expectations import stretch
from tests.mlrl_core.sandbox.world import World

SOURCES = {
    "pass": "ok",
    "raise SystemExit(3)": "error",
    "import os; os.fork(); os.setsid() if os.getpid() % 2 else None; import time; time.sleep(0.2)": "ok",
    "import subprocess, time; subprocess.Popen(['sleep', '60']); time.sleep(0.1)": "ok",
    "x = []\nwhile True: x.append(b'x' * (8 << 20))": "oom",
    "while True: print('x' * 60_000)": "output_limit",
    "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)": "timeout",
    "while True: pass": "timeout",
    "import os\nwhile True: os.write(1, b'y')": "timeout|output_limit",
}


def storm(backend: str, runs: int, world: World, open_for_tests: Opener, tmp_path: Path) -> Counter[str]:
    """``runs`` random programs, a third cancelled at a random moment; now and then a process of a run is killed."""
    others = set(descendants_of(os.getpid()))  # among them the private engine of other tests
    sandbox = open_for_tests(backend, time_limit_s=1.0, slots=4, output_limit_mb=2)
    random.seed(0)
    plan = [
        (random.choice(list(SOURCES)), random.random() * 1.2 if random.random() < 0.33 else None) for _ in range(runs)
    ]
    seen: Counter[str] = Counter()
    stop = threading.Event()

    def one(job: tuple[int, tuple[str, float | None]]) -> None:
        number, (source, cancel_after) = job
        cancel = threading.Event()
        timer = threading.Timer(cancel_after or 60, cancel.set)
        timer.start()
        try:
            result = sandbox.run(source, world.inputs, collect_to=tmp_path / f"{number}.csv", cancel=cancel)
            seen[result.status] += 1
            assert result.status in ExecutionStatus.__args__  # type: ignore[attr-defined]
            expected = SOURCES[source].split("|") + (["cancelled"] if cancel_after else [])
            expected += ["timeout"] if stretch() > 1 else []  # a second is short on a busy machine
            if backend == "docker":  # nobody kills its processes here
                assert result.status in expected, (source, result)
        except InfraError:
            seen["infra_error"] += 1
        finally:
            timer.cancel()

    def killer() -> None:
        while not stop.wait(0.5):
            mine = [pid for pid in descendants_of(os.getpid()) if pid not in others]
            if mine and backend != "docker":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(mine), signal.SIGKILL)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, enumerate(plan)))
    finally:
        stop.set()
        thread.join()
    assert sum(seen.values()) == runs
    return seen


@pytest.mark.usefixtures("nothing_left")
def test_a_short_storm_in_bubblewrap(world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    seen = storm("bubblewrap", 40, world, open_for_tests, tmp_path)
    assert {"ok", "timeout", "cancelled"} <= seen.keys()
    time.sleep(0.5)  # helpers that were killed take a moment to go


@pytest.mark.slow
@pytest.mark.timeout(3600)  # two minutes under bubblewrap; docker starts containers one a core, for 5 to 20
@pytest.mark.parametrize("backend", ["bubblewrap", "docker", "process"])
@pytest.mark.usefixtures("nothing_left")
def test_a_thousand_runs(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    seen = storm(backend, 1000, world, open_for_tests, tmp_path)
    assert {"ok", "error", "oom", "output_limit", "timeout", "cancelled"} <= seen.keys(), seen
    time.sleep(0.5)
