"""What the sandbox takes from this host: a folder for its locks and mount points, CPUs, user numbers."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

from mlrl_core.errors import MlrlError

# Users of sandboxed programs where the worker is root, one per slot: far above any account, subuid range or
# systemd's dynamic users, and within what every kernel and engine accepts.
FIRST_UID = 1_990_000_000


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


def slot_count(slots: int, cpus: float) -> int:
    """``slots``, or where that is 0 as many as the cores hold without sharing one."""
    return slots or max(1, len(usable_cpus()) // math.ceil(cpus))


def slot_cpus(index: int, cpus: float) -> list[int]:
    """The CPU set of slot ``index``: whole cores, neighbours share none as long as the cores suffice."""
    available = usable_cpus()
    width = min(math.ceil(cpus), len(available))
    return sorted({available[(index * width + offset) % len(available)] for offset in range(width)})
