"""Where a container's program finds its input and leaves its output: host mounts for root, volumes for others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Protocol

from mlrl_core.errors import InfraError
from mlrl_core.sandbox import programs
from mlrl_core.sandbox.collector import NAME, Submission, collect, refusal, store
from mlrl_core.sandbox.engine import engine_errors
from mlrl_core.sandbox.helper import linux
from mlrl_core.sandbox.limits import MIB, Limits

# What the submission is, to stderr; what is in it, to stdout.
_READ = """
chmod 700 {folder}
if [ ! -e {file} ] && [ ! -L {file} ]; then echo missing >&2; exit; fi
about=$(stat -c '%f %h %s' {file}); echo "$about" >&2; set -- $about
if [ ! -L {file} ] && [ -f {file} ] && [ "$2" = 1 ] && [ "$3" -le {cap} ]; then chmod 600 {file}; cat {file}; fi
"""


class OutputPlace(Protocol):
    """A fresh output folder of limited size: mounted at ``/out``, collected after the program's end, then gone."""

    def mount(self) -> Any:
        """The engine's mount entry."""

    def collect(self, destination: Path, cap: int) -> Submission:
        """What is left of the one file that counts. Raises InfraError."""

    def remove(self) -> None:
        """Idempotent."""


class HostTmpfs:
    """A tmpfs of this host (root only): the collector opens it by descriptor, nothing travels."""

    def __init__(self, folder: Path, limits: Limits, uid: int) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700)
        try:
            inodes = max(limits.out // MIB * 128, 1024)
            linux.mount_tmpfs(str(folder), size=limits.out, inodes=inodes, mode=0o700, owner=uid)
        except OSError as error:
            folder.rmdir()
            raise InfraError(f"can't mount the output folder: {error}") from error
        self._mounted = True
        (folder / "input").mkdir(mode=0o755)

    def mount(self) -> Any:
        import docker

        return docker.types.Mount(programs.OUT, str(self._folder), type="bind")

    def collect(self, destination: Path, cap: int) -> Submission:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return collect(descriptor, destination, cap)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        if self._mounted:
            try:
                linux.unmount(str(self._folder))
            except OSError as error:
                raise InfraError(f"can't unmount an output folder: {error}") from error
            self._mounted = False
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()


class EngineVolume:
    """A tmpfs volume of the engine, kept alive by a small holder container from which the file is read.

    The holder reads its standard input, which the engine closes when this process is gone, however it went; the time
    limit is for an engine that does not hear of that.
    """

    def __init__(self, client: Any, image: str, name: str, limits: Limits, uid: int, labels: dict[str, str]) -> None:
        import docker

        self._client, self._name, self._holder = client, name, ""
        self._lifeline: Any = None
        inodes = max(limits.out // MIB * 128, 1024)
        options = f"size={limits.out},nr_inodes={inodes},uid={uid},gid={uid},mode=0700,nosuid,nodev,noexec"
        with engine_errors("making the output volume"):
            client.api.create_volume(
                name, driver="local", driver_opts={"type": "tmpfs", "device": "tmpfs", "o": options}, labels=labels
            )
        try:
            with engine_errors("starting the volume's holder"):
                host = client.api.create_host_config(
                    network_mode="none",
                    read_only=True,
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges:true"],
                    pids_limit=8,
                    mem_limit=limits.out + (64 << 20),
                    log_config=docker.types.LogConfig(type="none"),
                    init=True,
                    # nocopy: else the engine copies the image's folder, with its owner, over ours
                    mounts=[docker.types.Mount("/out", name, type="volume", no_copy=True)],
                )
                lifetime = str(int(limits.time_s) + 120)
                self._holder = f"{name}-hold"  # a create that fails may have made it all the same
                client.api.create_container(
                    image,
                    ["timeout", lifetime, "cat"],
                    user=f"{uid}:{uid}",
                    stdin_open=True,  # docker-py then closes it with the first client that leaves
                    host_config=host,
                    labels=labels,
                    name=f"{name}-hold",
                )["Id"]
                self._lifeline = client.api.attach_socket(self._holder, params={"stdin": 1, "stream": 1})
                client.api.start(self._holder)
        except InfraError:
            self.remove()
            raise

    def mount(self) -> Any:
        import docker

        return docker.types.Mount(programs.OUT, self._name, type="volume", no_copy=True)

    def collect(self, destination: Path, cap: int) -> Submission:
        """Read through the holder, which runs as the folder's owner and so can undo what the program did to modes.

        Not as the engine's archive: that follows links, hides other names of the file, and fails for what a program can
        make at will (a socket, a link to itself, a time stamp in the year 10000), so that its fault would look like
        ours. The program is dead: what ``stat`` says stays true. Raises InfraError.
        """
        with engine_errors("reading the submission"):
            script = _READ.format(file=f"{programs.OUT}/{NAME}", folder=programs.OUT, cap=cap)
            call = self._client.api.exec_create(self._holder, ["sh", "-c", script])["Id"]
            data, about = self._client.api.exec_start(call, demux=True)
        words = (about or b"").decode("ascii", "replace").split()
        if words == ["missing"]:
            return Submission("missing")
        try:
            mode, links, size = int(words[0], 16), int(words[1]), int(words[2])
        except (ValueError, IndexError):
            raise InfraError(f"docker: no answer about the submission ({' '.join(words)[:100]})") from None
        if refused := refusal(mode, links, size, cap):
            return refused
        if len(data or b"") != size:
            raise InfraError("docker: the submission was cut short")
        return store(data or b"", destination)

    def remove(self) -> None:
        import docker

        if self._lifeline is not None:
            self._lifeline.close()
        with engine_errors("removing the output volume"):
            for call, name in (
                (lambda n: self._client.api.remove_container(n, force=True, v=True), self._holder),
                (self._client.api.remove_volume, self._name),
            ):
                if name:
                    with contextlib.suppress(docker.errors.NotFound):
                        call(name)


def job_folder(folder: Path, source: str, launcher: str, seccomp: bytes, accounts: dict[str, str]) -> None:
    """What the container reads at ``/job``, and the account files beside it. World-readable, written once."""
    for name in ("job", "etc"):
        (folder / name).mkdir(mode=0o755)
    files = {
        "job/solution.py": source.encode("utf-8", "surrogatepass"),
        "job/launch.py": launcher.encode(),
        "job/filter.bpf": seccomp,
        **{f"etc/{name}": text.encode() for name, text in accounts.items()},
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o644)
