"""Ctrl-C and SIGTERM: end soon, leave nothing behind.

The first signal asks: every wait of the run sees ``cancel`` and ends within a second or two. If something does not
listen, a watchdog ends the process, with all its children, before the 15 seconds are over. A second signal does so
at once.
"""

from __future__ import annotations

import os
import signal
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

_GRACE_S = 12.0
EXIT_INTERRUPTED = 130


@contextmanager
def stoppable(cancel: threading.Event, last_words: Callable[[], None]) -> Iterator[None]:
    """Turn signals into ``cancel`` while inside. Outside the main thread signals are the caller's business.

    ``last_words`` is called when the process has to be ended hard: record the state, say how to go on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over = threading.Event()

    def watch() -> None:
        cancel.wait()
        if not over.wait(_GRACE_S):
            _end_hard(last_words)

    def on_signal(number: int, frame: types.FrameType | None) -> None:
        if cancel.is_set():
            _end_hard(last_words)
        cancel.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    threading.Thread(target=watch, name="stop-watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_hard(last_words: Callable[[], None]) -> None:
    try:
        last_words()
    finally:
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.Error:
                continue
        os._exit(EXIT_INTERRUPTED)
