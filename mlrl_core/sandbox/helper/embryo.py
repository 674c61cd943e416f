"""A process that waits in its control groups for the program that it will become.

Joining a group costs 10 to 20 ms of the kernel's bookkeeping (measured, version 1); it is done here ahead of time,
between two runs, so that no run waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

from mlrl_core.sandbox.helper import linux
from mlrl_core.sandbox.helper.cgroups import Groups

# Descriptor numbers in the program's process: streams, then what only bwrap reads (it closes them).
ARGUMENTS_FD, SECCOMP_FD, INFO_FD = 10, 11, 12
_EXEC_FAILED = 125


class Embryo:
    """``become`` turns it into a program. ``pid`` is the program's; ``groups`` None = no control groups here."""

    def __init__(self, name: str, bases: dict[str, Path] | None) -> None:
        self.groups = Groups(name, bases) if bases else None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _wait_and_exec(theirs, self.groups)  # never returns
        theirs.close()

    def become(self, spec: dict[str, Any], fds: list[int]) -> None:
        """Start the program: ``fds`` are stdout, stderr and, for bwrap, arguments, filter and info."""
        socket.send_fds(self._socket, [json.dumps(spec).encode()], fds)
        self._socket.close()

    def discard(self) -> list[str]:
        """End it unused; returns the groups that could not be removed."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        return self.groups.remove() if self.groups else []


def _wait_and_exec(control: socket.socket, groups: Groups | None) -> None:
    try:
        if groups:
            groups.join()
        data, fds, _, _ = socket.recv_fds(control, 1 << 17, 8)
        if not data:
            os._exit(0)  # discarded, or the helper died
        _become(json.loads(data), list(fds))
    except BaseException as error:
        os.write(2, f"sandbox helper: {error}\n".encode())
    finally:
        os._exit(_EXEC_FAILED)


def _become(spec: dict[str, Any], fds: list[int]) -> None:
    wanted = [os.open("/dev/null", os.O_RDONLY), *fds]
    targets = [0, 1, 2, ARGUMENTS_FD, SECCOMP_FD, INFO_FD][: len(wanted)]
    # Out of the way first, so that no target overwrites a source.
    lifted = [_lift(fd) for fd in wanted]
    for source, target in zip(lifted, targets, strict=True):
        os.dup2(source, target, inheritable=True)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    for kind, value in spec["rlimits"]:
        resource.setrlimit(kind, (value, value))
    os.sched_setaffinity(0, spec["cpu_list"])
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:  # a worker's raised priority is not the program's
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if spec["workdir"]:
        os.setsid()
        linux.set_process_flag(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(spec["workdir"])
    if spec["uid"] is not None:
        os.setgroups([])
        os.setresgid(spec["uid"], spec["uid"], spec["uid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if not spec["workdir"] and os.geteuid() == 0:
        raise PermissionError("bubblewrap is never started by root")
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Whatever else is open (received descriptors are inheritable) must not reach the program.
    os.closerange(3, ARGUMENTS_FD)
    os.closerange(targets[-1] + 1 if len(targets) > 3 else 3, 1024)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def _lift(fd: int) -> int:
    """The same open file above every target number."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
