"""What surrounds a hostile program in the tests: secrets it must not find, a listener it must not reach, a witness
it must not kill; and the state of the host that must be the same afterwards."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.sandbox.helper.cgroups import PREFIX
from mlrl_core.sandbox.helper.linux import descendants_of
from mlrl_core.sandbox.owners import owner_name

SECRET = "MLRL-PARENT-" + "SECRET-TOKEN"
ANSWERS = "MLRL-PRIVATE-" + "ANSWERS-TOKEN"
_SYSCTLS = ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory", "net/ipv4/ip_forward")


@dataclass
class World:
    """``env``: what the programs are told. ``connections``: how often the listener was reached."""

    inputs: Path
    private: Path
    marker: Path
    listener: socket.socket
    env: dict[str, str]

    def reached(self) -> bool:
        """Whether anything connected to the listener since the last call."""
        self.listener.setblocking(False)
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return False
        connection.close()
        return True

    @contextmanager
    def witness(self, uid: int) -> Iterator[subprocess.Popen[bytes]]:
        """A process of user ``uid`` outside the sandbox; it must be alive at the end."""

        def become() -> None:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)

        process = subprocess.Popen(["sleep", "600"], preexec_fn=become)
        try:
            yield process
            assert process.poll() is None, "a process outside the sandbox was killed"
        finally:
            process.kill()
            process.wait()


@contextmanager
def make_world(folder: Path) -> Iterator[World]:
    inputs = folder / "public"
    inputs.mkdir()
    (inputs / "train.csv").write_text("id,x,y\n1,0.5,1\n2,0.25,0\n")
    private = folder / f"private-{os.getpid()}"
    private.mkdir()
    (private / "answers.csv").write_text(f"id,y\n1,{ANSWERS}\n")
    marker = folder / "planted-code-ran"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        port = listener.getsockname()[1]
        abstract.bind(f"\0mlrl-probe-{port}")
        abstract.listen()
        os.environ["MLRL_TEST_SECRET"] = SECRET
        try:
            env = {
                "MLRL_PROBE_HOST": "127.0.0.1",
                "MLRL_PROBE_PORT": str(port),
                "MLRL_PROBE_PRIVATE": str(private),
                "MLRL_PROBE_MARKER": str(marker),
            }
            yield World(inputs, private, marker, listener, env)
        finally:
            del os.environ["MLRL_TEST_SECRET"]


def host_state(inputs: Path) -> dict[str, object]:
    """What a program must leave as it found it."""
    return {
        "sysctls": {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS},
        "inputs": {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in inputs.iterdir()},
        "mounts": sorted(line for line in Path("/proc/self/mounts").read_text().splitlines() if not _of_others(line)),
        # names that programs try to create outside; other files may come and go while the tests run
        "working folder": sorted(name for name in os.listdir(".") if "mlrl-" in name or name.startswith("submission")),
        "root": sorted(os.listdir("/")),
    }


def _of_others(mount: str) -> bool:
    """An engine's own (it may be started between two looks), or of another worker that runs at the same time."""
    target = mount.split()[1]
    engines = target.endswith("/root") and "docker" not in mount.split()[0]
    instance = re.search(r"/instances/(\d+-\d+)-", target)
    return engines or "/overlay2/" in target or (instance is not None and instance[1] != owner_name())


def own_processes(uids: range) -> list[str]:
    """``pid command`` of every process below this one that runs as one of these users."""
    found = []
    for pid in descendants_of(os.getpid()):
        try:
            if os.stat(f"/proc/{pid}").st_uid in uids:
                found.append(f"{pid} {Path('/proc', str(pid), 'comm').read_text().strip()}")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def own_groups() -> list[str]:
    """Control groups of ours as relative paths: those of helpers below this process, and those of its containers."""
    root = Path("/sys/fs/cgroup")
    pids = {os.getpid(), *descendants_of(os.getpid())}
    return sorted(  # os.walk, since groups of others come and go meanwhile
        str(Path(top, name).relative_to(root))
        for top, names, _ in os.walk(root)
        for name in names
        if name.startswith(PREFIX) and int(name.split("-")[2]) in pids
    )
