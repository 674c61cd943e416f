"""What the sandbox takes from this host: a folder for its locks and mount points, CPUs, user numbers."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlrl_core.errors import InfraError, MlrlError

# Users of sandboxed programs where the worker is root, one per slot: far above any account, subuid range or
# systemd's dynamic users, and within what every kernel and engine accepts.
FIRST_UID = 1_990_000_000

RESERVE = 1 << 30  # of memory, for the host


@contextmanager
def host_errors() -> Iterator[None]:
    """What this host refuses a run (a full disk, no descriptors left) as InfraError."""
    try:
        yield
    except OSError as error:
        raise InfraError(f"the sandbox's host failed: {error}") from error


def runtime_dir() -> Path:
    """The folder of this user on this host for slot locks, mount points and owner records.

    ``$MLRL_RUNTIME_DIR``, else ``/run/mlrl`` for root, ``$XDG_RUNTIME_DIR/mlrl`` or ``/tmp/mlrl-<uid>`` for others.
    Raises MlrlError when it belongs to somebody else or can't be made.
    """
    uid = os.geteuid()
    if named := os.environ.get("MLRL_RUNTIME_DIR"):
        folder = Path(named)
    elif uid == 0:
        folder = Path("/run/mlrl")
    elif (runtime := os.environ.get("XDG_RUNTIME_DIR")) and os.access(runtime, os.W_OK):
        folder = Path(runtime) / "mlrl"
    else:
        folder = Path(f"/tmp/mlrl-{uid}")
    try:
        folder.mkdir(mode=0o711 if uid == 0 else 0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise MlrlError(f"can't make the runtime folder {folder} ({error.strerror}): set MLRL_RUNTIME_DIR") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
        raise MlrlError(f"{folder} is not a folder that only this user can write: remove it or set MLRL_RUNTIME_DIR")
    return folder


def usable_cpus() -> list[int]:
    """The CPUs this process may run on, in order."""
    return sorted(os.sched_getaffinity(0))


def slot_count(slots: int, cpus: float, memory: int) -> int:
    """``slots``, or where that is 0 as many as the cores and the memory (bytes each) hold, at least one.

    Raises MlrlError when the host's memory can't hold them all: the host must never run out, or it kills the wrong
    process.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fitting = (total - RESERVE) // memory
    if slots == 0:
        slots = max(1, min(len(usable_cpus()) // math.ceil(cpus), fitting))
    if slots > fitting:
        raise MlrlError(
            f"{slots} slots of {memory >> 20} MiB don't fit into {total >> 20} MiB of memory ({RESERVE >> 20} MiB are "
            "kept free): lower sandbox.memory_mb or sandbox.slots"
        )
    return slots


def slot_cpus(index: int, cpus: float) -> list[int]:
    """The CPU set of slot ``index``: whole cores, neighbours share none as long as the cores suffice."""
    available = usable_cpus()
    width = min(math.ceil(cpus), len(available))
    return sorted({available[(index * width + offset) % len(available)] for offset in range(width)})
