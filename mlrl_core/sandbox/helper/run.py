"""One program in the helper: prepare its places, start it, watch it, end it, count it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from mlrl_core.sandbox.helper import linux
from mlrl_core.sandbox.helper.embryo import ARGUMENTS_FD, INFO_FD, SECCOMP_FD, Embryo
from mlrl_core.sandbox.helper.trees import remove_tree

WATCH_INTERVAL_S = 0.05  # how often memory is measured where no control group limits it
KILL_PATIENCE_S = 5.0
MIB = 1 << 20


@dataclass
class Job:
    """What the parent asked for. ``uid`` None = stay who we are. Paths are those of the helper's namespace."""

    argv: list[str]
    env: dict[str, str]
    bwrap: list[str]  # arguments of bwrap; empty = a plain process
    inputs: str
    workdir: str  # plain process only: its own folder
    uid: int | None
    cpu_list: list[int]
    limits: dict[str, float]
    deadline_s: float  # the helper's own end of the run, behind the parent's
    fds: list[int] = field(default_factory=list)  # stdout, stderr, source


class Run:
    """``poll`` until it returns True -> ``exit_report`` -> ``release``."""

    def __init__(self, job: Job, embryo: Embryo, stage: str, seccomp: bytes) -> None:
        self.job, self.stage = job, stage
        self._groups = embryo.groups
        self._pid = embryo.pid
        self._pidfd = os.pidfd_open(embryo.pid)
        self._mounts: list[str] = []
        self._info_fd = -1
        self._info = b""
        self._inner: int | None = None  # pid 1 of the sandbox
        self._inner_pidfd = -1
        self._memory_killed = False
        self._peak = 0
        self._cpu_s = 0.0
        self._next_watch = 0.0
        self._started = time.monotonic()
        self.out_fd = -1
        self.leftovers: list[str] = []
        try:
            self._out = self._prepare_places()
            self.out_fd = os.open(self._out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if self._groups:
                self._groups.limit(
                    memory=int(job.limits["memory"]),
                    pids=int(job.limits["pids"]),
                    cpus=job.limits["cpus"],
                    cpu_list=job.cpu_list,
                )
            self._start(embryo, seccomp)
        except BaseException:
            self.kill()
            self._end_all()
            self.release()
            raise

    # --- start --------------------------------------------------------------------------------------------------

    def _prepare_places(self) -> str:
        """Fresh output, temporary and job folders; returns the output folder."""
        with os.fdopen(os.dup(self.job.fds[2]), "rb") as file:
            source = file.read()
        if not self.job.bwrap:
            out = os.path.join(self.job.workdir, "out")
            for name in ("job", "out", "tmp"):
                os.makedirs(os.path.join(self.job.workdir, name))
            _write(os.path.join(self.job.workdir, "job", "solution.py"), source)
            os.symlink(self.job.inputs, os.path.join(out, "input"))
            return out
        limits, owner = self.job.limits, os.getuid() if self.job.uid is None else self.job.uid
        self._mount_tmpfs("out", int(limits["out"]), int(limits["out"] // MIB * 128), 0o700, owner)
        self._mount_tmpfs("tmp", int(limits["tmp"]), int(limits["tmp"] // MIB * 256), 0o1777, owner)
        self._mount_tmpfs("shm", int(limits["shm"]), int(limits["shm"] // MIB * 256), 0o1777, owner)
        os.mkdir(os.path.join(self.stage, "out", "input"), 0o755)
        linux.bind(self.job.inputs, os.path.join(self.stage, "in"))
        self._mounts.append(os.path.join(self.stage, "in"))
        _write(os.path.join(self.stage, "job", "solution.py"), source)
        return os.path.join(self.stage, "out")

    def _mount_tmpfs(self, name: str, size: int, inodes: int, mode: int, owner: int) -> None:
        target = os.path.join(self.stage, name)
        linux.mount_tmpfs(target, size=size, inodes=max(inodes, 1024), mode=mode, owner=owner)
        self._mounts.append(target)

    def _start(self, embryo: Embryo, seccomp: bytes) -> None:
        argv, fds = self.job.argv, self.job.fds[:2]
        if self.job.bwrap:
            self._info_fd, info_write = os.pipe()
            options = [*self.job.bwrap, "--seccomp", str(SECCOMP_FD), "--info-fd", str(INFO_FD)]
            arguments = _memory_file(b"".join(os.fsencode(word) + b"\0" for word in options))
            argv = ["bwrap", "--args", str(ARGUMENTS_FD), "--", *argv]
            fds = [*fds, arguments, _memory_file(seccomp), info_write]
        embryo.become(
            {
                "argv": argv,
                "env": self.job.env,
                "uid": self.job.uid,
                "cpu_list": self.job.cpu_list,
                "rlimits": self._rlimits(),
                "workdir": "" if self.job.bwrap else self._out,
            },
            fds,
        )
        for fd in (*fds, self.job.fds[2]):
            os.close(fd)  # the streams end when the program's copies are closed
        self.job.fds.clear()

    def _rlimits(self) -> list[tuple[int, int]]:
        limits = self.job.limits
        chosen = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, int(limits["nofile"])),
            (resource.RLIMIT_FSIZE, int(limits["fsize"])),
        ]
        if not self._groups and self.job.bwrap:
            # Counted per user namespace, and the helper's is fresh: it bounds this sandbox alone.
            chosen.append((resource.RLIMIT_NPROC, int(limits["pids"]) + 4))
        return chosen

    # --- watch --------------------------------------------------------------------------------------------------

    def poll(self, control_fd: int) -> tuple[bool, bool]:
        """Wait a moment; returns (the program has ended, the parent has something to say)."""
        waiting = [self._pidfd, control_fd] + ([self._info_fd] if self._info_fd >= 0 else [])
        left = self._started + self.job.deadline_s - time.monotonic()
        if left <= 0:
            self.kill()
        patience = max(left, 0.1) if self._groups else WATCH_INTERVAL_S
        ready, _, _ = select.select(waiting, [], [], patience)
        if self._info_fd in ready:
            self._read_info()
        if not self._groups:
            self._watch_memory()
        return self._pidfd in ready, control_fd in ready

    def _read_info(self) -> None:
        """Learn the pid of the sandbox's pid 1: when that has ended, nothing of the sandbox is left."""
        data = os.read(self._info_fd, 4096)
        self._info += data
        if data:
            return  # bwrap writes in pieces; closing early would kill it with SIGPIPE
        os.close(self._info_fd)
        self._info_fd = -1
        try:
            self._inner = int(json.loads(self._info)["child-pid"])
            self._inner_pidfd = os.pidfd_open(self._inner)
        except (ValueError, KeyError, OSError):
            pass  # bwrap failed, or all is over already

    def _watch_memory(self) -> None:
        now = time.monotonic()
        if now < self._next_watch:
            return
        self._next_watch = now + WATCH_INTERVAL_S
        limit = int(self.job.limits["memory"])
        pids = linux.descendants_of(os.getpid())
        used = linux.resident_bytes(pids, limit)
        for target in self._mounts:
            if not target.endswith("/in"):
                space = os.statvfs(target)
                used += (space.f_blocks - space.f_bfree) * space.f_frsize
        self._peak = max(self._peak, used)
        if used > limit:
            # As the kernel would: the largest process goes, and the program may outlive its child.
            self._memory_killed = True
            largest = max(pids, key=lambda pid: linux.resident_bytes([pid], limit), default=self._pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(largest, signal.SIGKILL)

    # --- end ----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL to all that belongs to the run. Returns at once; ``poll`` sees the end."""
        targets = [self._pid, self._inner or 0, *linux.descendants_of(os.getpid())]
        if self._groups:
            targets += self._groups.pids()
        for pid in targets:
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def exit_report(self) -> dict[str, Any]:
        """Reap the program, end what it left behind, read the counters."""
        at = time.monotonic()
        _, status, usage = os.wait4(self._pid, 0)
        self._pid = 0
        self._count(usage)
        code = os.waitstatus_to_exitcode(status)
        self._end_all()
        report = {"code": code if code >= 0 else 128 - code, "at": at}
        if self._groups:
            counted = self._groups.counters()
            return {
                **report,
                "oom": bool(counted.oom_kills),
                "peak": counted.peak_bytes,
                "cpu_s": counted.cpu_seconds,
            }
        return {**report, "oom": self._memory_killed, "peak": self._peak, "cpu_s": self._cpu_s}

    def _end_all(self) -> None:
        """Nothing of the run is alive when this returns, or it is named in ``leftovers``."""
        end = time.monotonic() + KILL_PATIENCE_S
        if self._inner_pidfd >= 0:
            while not select.select([self._inner_pidfd], [], [], 0.05)[0] and time.monotonic() < end:
                self.kill()
        if self._groups and not self._groups.kill(KILL_PATIENCE_S):
            self.leftovers += [f"process {pid}" for pid in self._groups.pids()]
        while self._reap():  # what lost its parent was handed to us: we are the subreaper
            self.kill()
            if time.monotonic() > end:
                self.leftovers += [f"process {pid}" for pid in linux.descendants_of(os.getpid())]
                break
            time.sleep(0.001)
        self._pid = 0
        # Open files that a program sent in a circle of sockets live on, and their memory with them, until the kernel
        # looks for such circles: whenever any socket is closed.
        for end_of_pair in socket.socketpair():
            end_of_pair.close()

    def _reap(self) -> bool:
        """Collect dead children; True while there are living ones."""
        try:
            while True:
                pid, _, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return True
                self._count(usage)
        except ChildProcessError:
            return False

    def _count(self, usage: resource.struct_rusage) -> None:
        """Add what a dead child and its own children used. Without control groups there is no other account."""
        self._cpu_s += usage.ru_utime + usage.ru_stime
        self._peak = max(self._peak, usage.ru_maxrss * 1024)

    def release(self) -> None:
        """Give back mounts, groups, descriptors and folders. The output folder goes with its last open descriptor."""
        for target in reversed(self._mounts):
            try:
                linux.unmount(target)
            except OSError as error:
                self.leftovers.append(str(error))
        self._mounts.clear()
        for name in ("_pidfd", "_inner_pidfd", "_info_fd", "out_fd"):
            fd = getattr(self, name)
            if fd >= 0:
                os.close(fd)
                setattr(self, name, -1)
        for fd in self.job.fds:
            os.close(fd)
        self.job.fds.clear()
        if self._groups:
            self.leftovers += self._groups.remove()
            self._groups = None
        if self.job.workdir and not self.job.bwrap and not remove_tree(self.job.workdir):
            self.leftovers.append(self.job.workdir)


def _write(path: str, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.chmod(path, 0o644)


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("mlrl")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
