"""Control groups of one run: limits, the out-of-memory flag, peak memory and CPU seconds.

Version 1 was measured; version 2 follows the kernel's documentation. A group lies below the group of the process
that makes it, so that the host's own limits go on to hold.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "cpuset")
# Groups are seen across process namespaces, where the same number is another process: a name is
# ``mlrl-<namespace>-<owner's pid>-<owner's start>-<rest>`` (a systemd slice's name has _ for -).
PREFIX = f"mlrl-{os.stat('/proc/self/ns/pid').st_ino}-"
_OURS = re.compile(PREFIX.replace("-", "[-_]") + r"(\d+)[-_](\d+)[-_]")


@dataclass(frozen=True)
class Counters:
    """What the groups counted; None where the kernel has no such counter."""

    oom_kills: int | None = None
    peak_bytes: int | None = None
    cpu_seconds: float | None = None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path, key: str = "") -> int | None:
    """The file's number, or the number behind ``key`` in a file of ``key value`` lines."""
    text = _read(path)
    if text is None:
        return None
    if key:
        text = next((line.split()[1] for line in text.splitlines() if line.split()[:1] == [key]), "")
    return int(text) if text.isdigit() else None


def own_group(controller: str) -> str:
    """Path of this process' group in ``controller``'s hierarchy ("" names version 2)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if (names == "" and controller == "") or controller in names.split(","):
            return path
    raise OSError(f"no control group hierarchy for {controller or 'version 2'}")


def base_folders() -> dict[str, Path]:
    """Where new groups go: controller -> folder ("" for version 2). Raises OSError where there is none."""
    if (MOUNT / "cgroup.controllers").exists():
        base = MOUNT / own_group("").lstrip("/")
        available = (_read(base / "cgroup.controllers") or "").split()
        missing = {"memory", "pids", "cpu"} - set(available)
        if missing:
            raise OSError(f"control group controllers not available here: {', '.join(sorted(missing))}")
        # A group with processes can't hand controllers down, except the root group: go beside ours then.
        if base != MOUNT and _read(base / "cgroup.procs"):
            base = base.parent
        wanted = [c for c in ("memory", "pids", "cpu", "cpuset") if c in available]
        (base / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in wanted))
        return {"": base}
    folders = {c: MOUNT / c / own_group(c).lstrip("/") for c in V1_CONTROLLERS if (MOUNT / c).is_dir()}
    missing = {"memory", "pids"} - folders.keys()
    if missing:
        raise OSError(f"control group controllers not mounted: {', '.join(sorted(missing))}")
    return folders


def read_counters(folders: dict[str, Path]) -> Counters:
    """The counters of a group: controller -> folder (version 1), or one folder under any name (version 2)."""
    unified = next((folder for folder in folders.values() if (folder / "memory.events").exists()), None)
    if unified is not None:
        usage = _number(unified / "cpu.stat", "usage_usec")
        return Counters(
            _number(unified / "memory.events", "oom_kill"),
            _number(unified / "memory.peak"),
            None if usage is None else usage / 1e6,
        )
    memory, cpu = folders.get("memory"), folders.get("cpuacct")
    usage = _number(cpu / "cpuacct.usage") if cpu else None
    return Counters(
        _number(memory / "memory.oom_control", "oom_kill") if memory else None,
        _number(memory / "memory.max_usage_in_bytes") if memory else None,
        None if usage is None else usage / 1e9,
    )


class Groups:
    """The groups of one run, one folder per controller (version 1) or one in all (version 2)."""

    def __init__(self, name: str, bases: dict[str, Path]) -> None:
        self.folders = {controller: base / f"{PREFIX}{name}" for controller, base in bases.items()}
        self.version = 2 if "" in bases else 1
        made: list[Path] = []
        try:
            for folder in self.folders.values():
                folder.mkdir()
                made.append(folder)
            if self.version == 1 and "cpuset" in bases:  # nothing can join before these are set
                for name in ("cpuset.mems", "cpuset.cpus"):
                    (self.folders["cpuset"] / name).write_text((bases["cpuset"] / name).read_text())
        except OSError:
            for folder in made:
                folder.rmdir()
            raise

    def limit(self, *, memory: int, pids: int, cpus: float, cpu_list: list[int]) -> None:
        """Set memory (swap off), number of processes, CPU share and CPU set."""
        # A quota on top of a whole number of pinned CPUs only adds throttling.
        quota = int(cpus * 100_000) if cpus < len(cpu_list) else None
        cpu_text = ",".join(map(str, cpu_list))
        if self.version == 2:
            folder = self.folders[""]
            (folder / "memory.max").write_text(str(memory))
            with contextlib.suppress(OSError):
                (folder / "memory.swap.max").write_text("0")
            (folder / "pids.max").write_text(str(pids))
            if quota:
                (folder / "cpu.max").write_text(f"{quota} 100000")
            with contextlib.suppress(OSError):
                (folder / "cpuset.cpus").write_text(cpu_text)
            return
        group = self.folders["memory"]
        (group / "memory.limit_in_bytes").write_text(str(memory))
        with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
            (group / "memory.memsw.limit_in_bytes").write_text(str(memory))
        (self.folders["pids"] / "pids.max").write_text(str(pids))
        if quota and "cpu" in self.folders:
            (self.folders["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
        if "cpuset" in self.folders:
            (self.folders["cpuset"] / "cpuset.cpus").write_text(cpu_text)

    def join(self) -> None:
        """Move the calling process into the groups."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text("0")

    def pids(self) -> list[int]:
        """Processes in the group now."""
        folder = self.folders.get("pids") or self.folders[""]
        pids = [int(word) for word in (_read(folder / "cgroup.procs") or "").split()]
        return [pid for pid in pids if pid > 0]  # 0 would be a process of another namespace

    def kill(self, patience_s: float = 5.0) -> bool:
        """SIGKILL until the groups are empty; False if something is left after ``patience_s``."""
        end = time.monotonic() + patience_s
        while True:
            if self.version == 2 and self.pids():
                with contextlib.suppress(OSError):
                    (self.folders[""] / "cgroup.kill").write_text("1")
            for pid in self.pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not self.pids():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.002)

    def counters(self) -> Counters:
        """Read the counters; valid until ``remove``."""
        return read_counters(self.folders)

    def remove(self, patience_s: float = 5.0) -> list[str]:
        """Remove the groups; returns those that stayed. A group is busy for a moment after its last process."""
        end = time.monotonic() + patience_s
        left = list(self.folders.values())
        while left:
            for folder in list(left):
                try:
                    folder.rmdir()
                    left.remove(folder)
                except FileNotFoundError:
                    left.remove(folder)
                except OSError:
                    pass
            if not left or time.monotonic() > end:
                break
            time.sleep(0.002)
        return [str(folder) for folder in left]


def remove_groups(is_left: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Remove groups of ours whose owner (``owner_name`` of a helper, or of a worker that ran a container) ``is_left``.

    A helper that was killed takes its programs along, but for one moment: bubblewrap's child waits for its parent
    before it asks to die with it. What a dead helper's group still holds is therefore killed. A container's processes
    are in a group of the engine's below ours and are the engine's to end. Returns (what went, what stayed).
    """
    removed: list[str] = []
    stayed: list[str] = []
    for top, names, _ in os.walk(MOUNT, topdown=False):
        for name in names:
            found = _OURS.match(name)
            if found is None or not is_left("-".join(found.groups())):
                continue
            group = Path(top, name)
            _end_members(group)
            try:
                for child in [child for child in group.iterdir() if child.is_dir()]:
                    child.rmdir()
                group.rmdir()
                removed.append(str(group))
            except FileNotFoundError:
                continue
            except OSError:
                stayed.append(str(group))
    return removed, stayed


def _end_members(group: Path, patience_s: float = 1.0) -> None:
    """SIGKILL what is in the group until it is empty."""
    end = time.monotonic() + patience_s
    while (members := _read(group / "cgroup.procs")) and time.monotonic() < end:
        for pid in map(int, members.split()):
            if pid > 0:  # 0 stands for a process of another namespace, and for kill() for our own process group
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
