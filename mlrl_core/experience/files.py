"""Publishing by rename: a reader sees a whole file or none."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def publish(path: Path, write: Callable[[Path], object], durable: bool = False) -> Path:
    """Let ``write`` fill a temporary file beside ``path``, then rename it into place.

    ``durable`` also survives a power cut (fsync of file and folder); without it the file survives any kill of
    the process. A failing ``write`` leaves nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        write(partial)
        if durable:
            _fsync(partial)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        _fsync(path.parent)
    return path


def publish_text(path: Path, text: str, durable: bool = False) -> Path:
    """``publish`` a UTF-8 text."""
    # Programs may hold lone surrogates (an escaped byte of a tokenizer): they must round-trip, not crash.
    return publish(path, lambda p: p.write_bytes(text.encode("utf-8", "surrogatepass")), durable)


def read_text(path: Path) -> str:
    """The counterpart of ``publish_text``."""
    return path.read_bytes().decode("utf-8", "surrogatepass")


def append_line(path: Path, line: str) -> None:
    """Append one line in one write: lines of several threads and processes never mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (line + "\n").encode())
    finally:
        os.close(descriptor)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
