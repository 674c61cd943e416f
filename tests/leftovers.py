"""Processes that a test leaves: a failed one must not hand them to the tests after it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from mlrl_core.sandbox.helper.linux import descendants_of

KEPT: set[int] = set()  # started within one test, shared by the session


def children() -> set[int]:
    """Those of this process itself: what a server of the session starts is the server's."""
    me = os.getpid()
    found = set()
    for pid in descendants_of(me):
        with contextlib.suppress(OSError):
            if int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]) == me:
                found.add(pid)
    return found - KEPT


def end(child: int) -> None:
    """With all that it started."""
    for pid in [*descendants_of(child), child]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
