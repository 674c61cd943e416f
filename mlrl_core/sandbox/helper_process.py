"""The worker's side of the helper (``sandbox/helper``): start it, talk to it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlrl_core.errors import InfraError
from mlrl_core.sandbox.helper.cgroups import remove_groups
from mlrl_core.sandbox.owners import owner_name

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from mlrl_core.sandbox.helper.main import main; main()"
_REPLY_S = 30.0  # for everything but a running program
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What every helper of a sandbox prepares once (``Helper.setup``)."""

    stage: str
    trees: tuple[str, ...]
    etc: dict[str, str]
    isolate: bool
    seccomp: str  # base64


class HelperProcess:
    """One helper. Not thread-safe: a run owns it from start to release. Raises InfraError on every failure."""

    def __init__(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        package_root = str(Path(__file__).resolve().parents[2])
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _BOOT, str(theirs.fileno()), package_root],
                    pass_fds=[theirs.fileno()],
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # a terminal's Ctrl-C reaches the worker, which decides
                )
        except OSError as error:
            ours.close()
            raise InfraError(f"can't start the sandbox helper: {error}") from error
        self.owner = owner_name(self._process.pid)
        try:
            self.send("setup", **asdict(setup))
            self.has_cgroups = bool(self.expect("ready")[0]["cgroups"])
        except BaseException:
            self.close()
            raise

    def send(self, operation: str, fds: tuple[int, ...] = (), **values: Any) -> None:
        try:
            socket.send_fds(self.socket, [json.dumps({"op": operation, **values}).encode()], list(fds))
        except OSError as error:
            raise InfraError(f"the sandbox helper is gone: {error.strerror}{self._last_words()}") from error

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next message; call it when the socket is readable."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 17, 4)
        except OSError as error:
            raise InfraError(f"the sandbox helper is gone: {error.strerror}") from error
        for fd in fds:
            os.set_inheritable(fd, False)
        if not data:
            raise InfraError(f"the sandbox helper is gone{self._last_words()}")
        message = json.loads(data)
        if message["event"] == "failed":
            raise InfraError(f"sandbox helper: {message['detail']}")
        return message, list(fds)

    def expect(self, event: str, timeout_s: float = _REPLY_S) -> tuple[dict[str, Any], list[int]]:
        """The next message, which must be ``event``."""
        if not _readable(self.socket.fileno(), timeout_s):
            raise InfraError(f"the sandbox helper did not answer `{event}` within {timeout_s:g} s")
        message, fds = self.receive()
        if message["event"] != event:
            raise InfraError(f"the sandbox helper answered `{message['event']}` instead of `{event}`")
        return message, fds

    def abort(self) -> None:
        """From another thread: make the helper end its program, and the run that waits for it fail."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket, upon which the helper kills its program and cleans up; kill it when it does not end."""
        self.socket.close()
        end = time.monotonic() + _END_S
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        if self._process.poll() is None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        if self._process.stderr:
            self._process.stderr.close()
        if self._process.returncode != 0:
            # Killed: its processes die with it, a moment later, and its groups stay.
            end = time.monotonic() + _END_S
            while remove_groups(lambda owner: owner == self.owner)[1] and time.monotonic() < end:
                time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _last_words(self) -> str:
        stream = self._process.stderr
        if stream is None or not _readable(stream.fileno(), 0.2):
            return ""
        lines = os.read(stream.fileno(), 8192).decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _readable(fd: int, timeout_s: float) -> bool:
    """poll, because select ends at descriptor 1023 and a worker may hold more."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
