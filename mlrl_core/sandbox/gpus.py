"""GPUs for solutions: each run has one device or MIG slice to itself, taken by UUID from a table of this host.

Such devices must not be those that train. The control groups limit no GPU memory, so a lease is exclusive, and it goes
back only when no process computes on the device any more.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlrl_core.errors import InfraError

FREE_S = 10.0
_POLL_S = 0.05


def computing_on(uuid: str) -> list[int]:
    """Pids that compute on a device, as the driver's tool says. Raises InfraError when it can't be asked."""
    command = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader", "-i", uuid]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise InfraError(f"nvidia-smi can't say whether {uuid} is free: {error}") from error
    return [int(line.split(",")[1]) for line in done.stdout.splitlines() if line.count(",") == 1]


class GpuLeases:
    """One lock file per device in ``folder``; the kernel gives a lease back when its owner dies."""

    def __init__(
        self, folder: Path, uuids: Sequence[str], computing: Callable[[str], list[int]] = computing_on
    ) -> None:
        self._folder, self._uuids, self._computing = folder, tuple(uuids), computing
        self._kept: list[int] = []  # locks of devices that did not become free: nobody gets them

    @contextmanager
    def lease(self, wait_s: float, cancel: threading.Event | None = None) -> Iterator[str]:
        """The UUID of a free device. Raises InfraError when none becomes free, or when the run's does not."""
        self._folder.mkdir(exist_ok=True)
        uuid, descriptor = self._take(wait_s, cancel)
        try:
            yield uuid
        finally:
            if self._becomes_free(uuid):
                os.close(descriptor)
            else:
                self._kept.append(descriptor)
                raise InfraError(f"GPU {uuid} is still in use {FREE_S:g} s after its run: it is not leased again")

    def _take(self, wait_s: float, cancel: threading.Event | None) -> tuple[str, int]:
        end = time.monotonic() + wait_s
        while True:
            for uuid in self._uuids:
                descriptor = os.open(
                    self._folder / f"{uuid.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                if not self._computing(uuid):
                    return uuid, descriptor
                os.close(descriptor)  # somebody outside the table uses it
            if time.monotonic() > end or (cancel is not None and cancel.is_set()):
                raise InfraError(f"no GPU became free in {wait_s:g} s ({len(self._uuids)} in the table)")
            time.sleep(_POLL_S)

    def _becomes_free(self, uuid: str) -> bool:
        end = time.monotonic() + FREE_S
        while self._computing(uuid):
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        """Give up the devices that were kept back."""
        while self._kept:
            os.close(self._kept.pop())
