"""Opening a submission: only a plain file of its own, never a link to something else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from mlrl_core.competitions.reasons import InvalidSubmission

MIN_CAP_BYTES = 16 * 1024**2
CAP_TIMES_SAMPLE = 8


def size_cap(sample_submission: Path) -> int:
    """Largest submission that is read, in bytes: 8 times the sample submission, and never under 16 MiB."""
    try:
        return max(MIN_CAP_BYTES, CAP_TIMES_SAMPLE * sample_submission.stat().st_size)
    except OSError:
        return MIN_CAP_BYTES


def read_submission(path: Path, cap_bytes: int) -> bytes:
    """The bytes of the submission. Links are refused before anything is opened, a pipe is never waited for.

    Raises InvalidSubmission.
    """
    try:
        info = path.lstat()
    except OSError as error:
        raise InvalidSubmission("missing" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "unreadable") from None
    if stat.S_ISLNK(info.st_mode):
        raise InvalidSubmission("symlink")
    if stat.S_ISDIR(info.st_mode):
        raise InvalidSubmission("directory")
    if path.suffix.lower() != ".csv":
        raise InvalidSubmission("wrong_suffix")
    try:
        # The path may have been swapped since: what is opened is checked again.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reasons = {errno.ELOOP: "symlink", errno.ENXIO: "not_regular", errno.ENOENT: "missing"}
        raise InvalidSubmission(reasons.get(error.errno or 0, "unreadable")) from None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise InvalidSubmission("not_regular")
        if info.st_nlink != 1:
            raise InvalidSubmission("hard_link")
        if info.st_size > cap_bytes:
            raise InvalidSubmission("too_large", f"{info.st_size} bytes, at most {cap_bytes} are read")
        try:
            data = file.read(cap_bytes + 1)
        except OSError:
            raise InvalidSubmission("unreadable") from None
    if len(data) > cap_bytes:
        raise InvalidSubmission("too_large", f"more than {cap_bytes} bytes")
    return data
