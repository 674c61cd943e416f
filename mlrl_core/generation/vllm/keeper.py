"""Run one command and see to its end: ``python keeper.py COMMAND...``, started by ``process.ServerProcess``.

The command ends when it ends by itself, or when this process's standard input closes: that is how its owner says so,
also by dying of SIGKILL. First SIGTERM, then SIGKILL to all that is left. A server's engine and workers make groups of
their own, so children are found as descendants: this process adopts those whose parent has gone. Standard library
only, and no package of ours: it stays small beside the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TERM_S = 10.0
KILL_S = 10.0
_POLL_S = 0.1


def main() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)

    def die_with_keeper() -> None:
        libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)

    # Ctrl-C in the terminal is the owner's to handle.
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_keeper)
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin.buffer], [], [], _POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            child.send_signal(signal.SIGTERM)
            break
    try:
        status = child.wait(TERM_S)
    except subprocess.TimeoutExpired:
        child.kill()
        status = child.wait(KILL_S)
    left = _end_descendants()
    if left:
        sys.stderr.write(f"keeper: processes {left} could not be ended\n")
        return 70
    return status if status >= 0 else 128 - status


def _end_descendants() -> list[int]:
    """SIGKILL to whatever is left, until nothing is; process ids that stay after ``KILL_S`` seconds."""
    end = time.monotonic() + KILL_S
    while True:
        _reap()
        left = _descendants(os.getpid())
        if not left or time.monotonic() > end:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {root})
        found |= more


if __name__ == "__main__":
    sys.exit(main())
