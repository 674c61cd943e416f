"""The keeper ends a server with all its processes, however its owner ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from mlrl_core.generation.vllm import keeper

# Like an engine: a child in a session of its own, which nobody's group kill reaches, and deaf to SIGTERM.
SERVER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"],
                 start_new_session=True)
time.sleep(300)
"""
OWNER = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, {keeper.__file__!r}, sys.executable, "-c", {SERVER!r}], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(300)
"""


def tree(pid: int) -> list[psutil.Process]:
    """The keeper, its server and the server's child, once all are there."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = psutil.Process(pid).children(recursive=True)
        if len(found) >= 2:
            return [psutil.Process(pid), *found]
        time.sleep(0.05)
    raise AssertionError("the server did not start")


def test_closing_its_input_ends_everything() -> None:
    command = [sys.executable, str(Path(keeper.__file__)), sys.executable, "-c", SERVER]
    started = subprocess.Popen(command, stdin=subprocess.PIPE)
    processes = tree(started.pid)
    assert started.stdin is not None
    started.stdin.close()
    started.wait(15)
    assert psutil.wait_procs(processes, timeout=5)[1] == []


def test_so_does_the_owners_sudden_death() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    processes = tree(int(owner.stdout.readline()))
    owner.kill()
    owner.wait(5)
    owner.stdout.close()
    assert psutil.wait_procs(processes, timeout=15)[1] == []


def test_a_server_that_ends_leaves_its_status_and_no_child() -> None:
    *lines, _ = SERVER.strip().splitlines()
    brief = "\n".join([*lines, "sys.exit(7)"])
    started = subprocess.Popen([sys.executable, keeper.__file__, sys.executable, "-c", brief], stdin=subprocess.PIPE)
    assert started.stdin is not None
    assert started.wait(30) == 7
    started.stdin.close()
    assert not [each for each in psutil.process_iter(["cmdline"]) if "SIG_IGN" in str(each.info["cmdline"])]
