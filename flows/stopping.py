"""Ctrl-C and SIGTERM: end soon, leave nothing behind.

The first signal asks: every wait of the run sees ``cancel`` and ends within a second or two. If the process is still
there after ``_GRACE_S``, whatever it waits for, a timer ends it with all its children before 15 seconds are over. A
second signal does so at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from mlrl_core.experience import RunDirectory
from mlrl_core.experience.state import read_state, write_state
from tasks.resources import find_resources

_GRACE_S = 9.0
_CLOSE_LIMIT_S = 2.5
EXIT_INTERRUPTED = 130


@contextmanager
def stoppable(cancel: threading.Event, run: RunDirectory, again: str = "") -> Iterator[None]:
    """Turn signals into ``cancel`` while inside. ``again``: the command that goes on, if not ``mlrl train --resume``.

    Every flow's body needs this: Prefect installs its own handlers at the start of each flow, which would end the
    wait for running programs only when they have ended by themselves. Outside the main thread signals are the
    caller's business.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: types.FrameType | None) -> None:
        if cancel.is_set():
            _end_hard(run, again)
        cancel.set()
        # Armed until the process is gone: closing stores and servers can hang as well as what comes before.
        timer = threading.Timer(_GRACE_S, _end_hard, [run, again])
        timer.daemon = True
        timer.start()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_hard(run: RunDirectory, again: str) -> None:
    try:
        write_state(run, read_state(run).ended("interrupted"))
        sys.stderr.write(f"\nended at once; go on by: {again or f'mlrl train --resume {run.path}'}\n")
        resources = find_resources(str(run.path))
        if resources is not None:  # containers are no children of this process
            closing = threading.Thread(target=resources.sandbox.close, daemon=True)
            closing.start()
            closing.join(_CLOSE_LIMIT_S)
    finally:
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.Error:
                continue
        os._exit(EXIT_INTERRUPTED)
