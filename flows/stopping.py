"""Ctrl-C and SIGTERM: end soon, leave nothing behind.

The first signal asks: every wait of the run sees ``cancel`` and ends within a second or two. If something does not
listen, a watchdog ends the process, with all its children, before the 15 seconds are over. A second signal does so
at once.
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

_GRACE_S = 9.0
_POLL_S = 0.5
EXIT_INTERRUPTED = 130


@contextmanager
def stoppable(cancel: threading.Event, run: RunDirectory) -> Iterator[None]:
    """Turn signals into ``cancel`` while inside, with the watchdog behind it."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if cancel.wait(_POLL_S) and not over.wait(_GRACE_S):
                _end_hard(run)

    threading.Thread(target=watch, name="stop-watchdog", daemon=True).start()
    try:
        with signals_to(cancel, run):
            yield
    finally:
        over.set()


@contextmanager
def signals_to(cancel: threading.Event, run: RunDirectory) -> Iterator[None]:
    """The handlers alone. Every flow's body needs them again: Prefect installs its own at the start of each flow,
    which would end the wait for running programs only when they have ended by themselves.

    Outside the main thread signals are the caller's business.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: types.FrameType | None) -> None:
        if cancel.is_set():
            _end_hard(run)
        cancel.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_hard(run: RunDirectory) -> None:
    try:
        write_state(run, read_state(run).ended("interrupted"))
        sys.stderr.write(f"\nended at once; go on by: mlrl train --resume {run.path}\n")
    finally:
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.Error:
                continue
        os._exit(EXIT_INTERRUPTED)
