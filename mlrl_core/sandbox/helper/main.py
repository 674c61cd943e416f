"""The helper's entry: one control socket, one program at a time.

Messages are JSON over a ``SOCK_SEQPACKET`` pair. The parent sends ``setup`` once, then ``run`` (with three
descriptors: stdout, stderr, source), ``kill`` and ``release``; the helper answers ``ready``, ``spawned`` (with the
descriptor of the output folder), ``exit``, ``released`` or ``failed``.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from mlrl_core.sandbox.helper import linux
from mlrl_core.sandbox.helper.cgroups import base_folders
from mlrl_core.sandbox.helper.embryo import Embryo
from mlrl_core.sandbox.helper.run import Job, Run
from mlrl_core.sandbox.owners import owner_name

MAX_MESSAGE = 1 << 17


class Helper:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.stage = ""
        self.bases: dict[str, Any] | None = None
        self.seccomp = b""
        self.embryo: Embryo | None = None  # the next program's process

    def send(self, event: str, fds: tuple[int, ...] = (), **values: Any) -> None:
        data = json.dumps({"event": event, **values}).encode()
        socket.send_fds(self.control, [data], list(fds))

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message, or None when the parent is gone."""
        data, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE, 8)
        for fd in fds:
            os.set_inheritable(fd, False)  # recv_fds ignores MSG_CMSG_CLOEXEC; the program must not get them
        return (json.loads(data), list(fds)) if data else None

    def serve(self) -> None:
        while (received := self.receive()) is not None:
            message, fds = received
            operation = message.pop("op")
            try:
                if operation == "setup":
                    self.setup(**message)
                elif operation == "run" and not self.run(Job(**message, fds=fds)):
                    break
                if self.embryo is None:
                    self.embryo = self.new_embryo()
            except Exception as error:  # reported to the parent, which decides; the helper goes on
                self.send("failed", detail=f"{type(error).__name__}: {error}")
        if self.embryo is not None:
            self.embryo.discard()

    def new_embryo(self) -> Embryo:
        return Embryo(f"{owner_name()}-{time.monotonic_ns():x}", self.bases)

    def setup(self, stage: str, trees: list[str], etc: dict[str, str], isolate: bool, seccomp: str) -> None:
        """Private mount namespace with the trees that an unprivileged user must reach. Raises OSError."""
        self.seccomp = base64.b64decode(seccomp)
        self.stage = stage
        linux.set_process_flag(linux.PR_SET_CHILD_SUBREAPER, 1)
        try:
            self.bases = base_folders() if isolate else None
            if self.bases and not all(os.access(folder, os.W_OK) for folder in self.bases.values()):
                self.bases = None
        except OSError:
            self.bases = None  # memory is then watched, not limited by the kernel
        if isolate:
            self._enter_namespaces()
            linux.mount_tmpfs(stage, size=64 << 20, mode=0o755, owner=os.getuid(), executable=True)
            for name in ("etc", "in", "job", "out", "tmp", "shm"):
                os.mkdir(os.path.join(stage, name), 0o755)
            for index, tree in enumerate(trees):
                target = os.path.join(stage, f"tree{index}")
                os.mkdir(target, 0o755)
                linux.bind(tree, target)
            open(os.path.join(stage, "empty"), "x").close()
            for name, text in etc.items():
                with open(os.path.join(stage, "etc", name), "x") as file:
                    file.write(text)
            if os.path.isdir("/etc/alternatives"):
                os.mkdir(os.path.join(stage, "etc", "alternatives"), 0o755)
                linux.bind("/etc/alternatives", os.path.join(stage, "etc", "alternatives"))
            if os.path.exists("/etc/ld.so.cache"):
                with open("/etc/ld.so.cache", "rb") as source, open(f"{stage}/etc/ld.so.cache", "xb") as copy:
                    copy.write(source.read())
        self.send("ready", cgroups=self.bases is not None)

    def _enter_namespaces(self) -> None:
        uid, gid = os.getuid(), os.getgid()
        if uid == 0:
            linux.unshare(linux.CLONE_NEWNS)
        else:
            linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)

    def run(self, job: Job) -> bool:
        """One program from start to release; False when the parent has gone away meanwhile."""
        embryo, self.embryo = self.embryo or self.new_embryo(), None
        run = Run(job, embryo, self.stage, self.seccomp)
        parent_here = True
        try:
            self.send("spawned", (run.out_fd,))
            while True:
                ended, said = run.poll(self.control.fileno())
                if said and parent_here:
                    received = self.receive()
                    parent_here = received is not None
                    run.kill()  # the only word while a program runs is `kill`; a closed socket means the same
                if ended:
                    break
                if not parent_here:
                    while not run.poll(self.control.fileno())[0]:
                        run.kill()
                    break
            report = run.exit_report()
            if parent_here:
                self.send("exit", **report)
                while (received := self.receive()) is not None:
                    if received[0]["op"] == "release":
                        break
                parent_here = received is not None
        finally:
            run.release()
        if parent_here:
            self.send("released", leftovers=run.leftovers)
        return parent_here


def main() -> None:
    """``python -I -S -c ... <socket fd>``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides; its end ends us
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    Helper(control).serve()
