"""A lock between processes that nobody waits for without end."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlrl_core.errors import InfraError

_POLL_S = 0.1


@contextmanager
def locked(path: Path, limit_s: float, doing: str) -> Iterator[None]:
    """Hold ``path`` alone among processes; the kernel releases it when the holder dies.

    Raises InfraError when another process has held it for ``limit_s`` seconds; ``doing`` says what for, in words.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InfraError(f"another process has been {doing} for {limit_s:g} s: end it") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
