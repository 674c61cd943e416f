"""Takes ``submission.csv`` out of an output folder that a hostile program filled, after that program is dead."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.errors import InfraError
from mlrl_core.records import SubmissionState

NAME = "submission.csv"
_ERRNO_REASONS = {errno.ELOOP: "symlink", errno.ENXIO: "not_regular", errno.EACCES: "unreadable"}
_MAGIC = (
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"BZh",
    b"\xfd7zXZ\x00",
    b"\x28\xb5\x2f\xfd",
    b"\x93NUMPY",
    b"PAR1",
)


@dataclass(frozen=True, slots=True)
class Submission:
    """``reason`` is of a fixed vocabulary: symlink, not_regular, links, size, binary, unreadable, io."""

    state: SubmissionState
    reason: str | None = None
    path: str | None = None
    bytes: int = 0


NOT_COLLECTED = Submission("not_collected")


def collect(folder_fd: int, destination: Path, cap: int) -> Submission:
    """Copy the one file of the fixed name from the open folder to ``destination`` if it is harmless to read.

    Regular, one link, at most ``cap`` bytes, not a link, not binary. Nothing else of the folder is looked at.
    Raises InfraError when ``destination`` can't be written.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(NAME, flags, dir_fd=folder_fd)
    except FileNotFoundError:
        return Submission("missing")
    except OSError as error:
        return _refused(_ERRNO_REASONS.get(error.errno or 0, "io"))
    try:
        data = _read(descriptor, cap)
    except OSError:
        return _refused("io")
    finally:
        os.close(descriptor)
    if isinstance(data, Submission):
        return data
    return store(data, destination)


def store(data: bytes, destination: Path) -> Submission:
    """Write a submission whose size is within the cap; refused when it is binary. Raises InfraError."""
    if is_binary(data):
        return _refused("binary", len(data))
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = destination.with_name(f".{destination.name}.partial")
        partial.write_bytes(data)
        partial.replace(destination)
    except OSError as error:
        raise InfraError(f"can't store a submission in {destination.parent}: {error.strerror}") from error
    return Submission("ok", None, str(destination), len(data))


def is_binary(data: bytes) -> bool:
    """Compressed, pickled, or with a NUL in the first 4 KiB: no table in text."""
    start = data[:4096]
    pickled = len(start) > 1 and start[0] == 0x80 and start[1] <= 5
    return pickled or start.startswith(_MAGIC) or b"\0" in start


def refusal(mode: int, links: int, size: int, cap: int) -> Submission | None:
    """Why something of this mode (``st_mode``), with so many names and bytes, is not read; None when it may be."""
    if stat.S_ISLNK(mode):
        return _refused("symlink")
    if not stat.S_ISREG(mode):
        return _refused("not_regular")
    if links != 1:
        return _refused("links", size)
    return _refused("size", size) if size > cap else None


def _read(descriptor: int, cap: int) -> bytes | Submission:
    found = os.fstat(descriptor)
    if refused := refusal(found.st_mode, found.st_nlink, found.st_size, cap):
        return refused
    data = bytearray()
    while len(data) <= cap:
        chunk = os.read(descriptor, min(1 << 20, cap + 1 - len(data)))
        if not chunk:
            return bytes(data)
        data += chunk
    return _refused("size", len(data))


def _refused(reason: str, size: int = 0) -> Submission:
    return Submission("refused", reason, None, size)
