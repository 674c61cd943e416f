"""Who owns what lies around: a process named so that it can't be taken for a later one of the same number."""

from __future__ import annotations

import os


def owner_name(pid: int | None = None) -> str:
    """``<pid>-<start time in clock ticks>`` of a process of this host (default: this one)."""
    number = os.getpid() if pid is None else pid
    return f"{number}-{_start_time(number)}"


def is_alive(owner: str) -> bool:
    """Whether the process that ``owner_name`` named still runs."""
    pid, _, started = owner.partition("-")
    try:
        return str(_start_time(int(pid))) == started
    except (OSError, ValueError):
        return False


def host_name() -> str:
    """This host and user, as a label: only its own containers are swept."""
    import hashlib
    import socket

    return hashlib.sha256(f"{socket.gethostname()}:{os.getuid()}".encode()).hexdigest()[:16]


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
