"""Execution slots: one lock file per slot and host. The kernel releases a lock when its owner dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.errors import InfraError
from mlrl_core.sandbox.host import FIRST_UID, slot_cpus

_POLL_S = 0.02


class Cancelled(Exception):
    """The caller's cancel event was set while waiting."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What one running program may use: its CPUs, and its user where the worker is root."""

    index: int
    cpus: tuple[int, ...]
    uid: int
    queue_s: float


@contextmanager
def acquire_slot(
    folder: Path, count: int, cpus: float, wait_s: float, cancel: threading.Event | None = None
) -> Iterator[Slot]:
    """Hold one of ``count`` slots of this user on this host.

    Raises InfraError after ``wait_s`` seconds, Cancelled when ``cancel`` is set first.
    """
    folder.mkdir(exist_ok=True)
    started = time.monotonic()
    descriptor = -1
    try:
        while descriptor < 0:
            for index in range(count):
                descriptor = _try_lock(folder / f"{index}.lock")
                if descriptor >= 0:
                    break
            else:
                if time.monotonic() - started > wait_s:
                    raise InfraError(f"no execution slot became free in {wait_s:g} s ({count} on this host)")
                if cancel is not None and cancel.wait(_POLL_S):
                    raise Cancelled
                if cancel is None:
                    time.sleep(_POLL_S)
        yield Slot(index, tuple(slot_cpus(index, cpus)), FIRST_UID + index, time.monotonic() - started)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _try_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor
