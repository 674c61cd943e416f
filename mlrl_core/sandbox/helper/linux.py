"""The few Linux calls that the standard library of Python 3.11 lacks."""

from __future__ import annotations

import contextlib
import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces in ``flags`` (``os.unshare`` exists from Python 3.12 on)."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError that names the target."""
    result = _libc.mount(
        source.encode(), target.encode(), fstype.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, f"mount on {target}")


def bind(source: str, target: str) -> None:
    """Bind a tree with everything mounted below it."""
    mount(source, target, flags=MS_BIND | MS_REC)


def mount_tmpfs(target: str, *, size: int, inodes: int = 0, mode: int, owner: int, executable: bool = False) -> None:
    """A tmpfs of ``size`` bytes (and ``inodes`` entries), owned by ``owner``, without devices and set-uid."""
    flags = MS_NOSUID | MS_NODEV | (0 if executable else MS_NOEXEC)
    entries = f",nr_inodes={inodes}" if inodes else ""
    mount("tmpfs", target, "tmpfs", flags, f"size={size}{entries},mode={mode:o},uid={owner},gid={owner}")


def unmount(target: str) -> None:
    """Detach a mount. What still holds it open keeps it alive, but nothing new can reach it."""
    _check(_libc.umount2(target.encode(), MNT_DETACH | UMOUNT_NOFOLLOW), f"unmount {target}")


def set_process_flag(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def descendants_of(pid: int) -> list[int]:
    """Every process below ``pid``, parents first. A snapshot: it may have changed when you read it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                # The command in parentheses may hold anything, so count from the last one.
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = list(children.get(pid, ()))
    for child in found:  # grows while we walk it
        found += children.get(child, ())
    return found


def resident_bytes(pids: list[int], limit: int) -> int:
    """Memory of ``pids`` together. The cheap upper bound first; shared pages are divided only when it exceeds
    ``limit``."""
    page = os.sysconf("SC_PAGESIZE")
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * page
        except (OSError, ValueError, IndexError):
            continue
    if total <= limit:
        return total
    proportional = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss:"):
                    proportional += int(line.split()[1]) * 1024
    return proportional or total
