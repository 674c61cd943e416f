"""A docker client that runs nothing: a scripted program, and a fault at any call that a test chooses."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import docker
import requests

from mlrl_core.sandbox.output import START_LINE


def api_error(status: int, text: str = "injected") -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    kind = docker.errors.NotFound if status == 404 else docker.errors.APIError
    return kind(text, response=response, explanation=text)


class FakeEngine:
    """``script``: what the program prints, one chunk each; it ends with ``exit_code`` after ``runs_s`` seconds, or
    when it is killed. ``faults[call]``: exceptions that the next calls of that name raise, None = none."""

    def __init__(self) -> None:
        self.script: list[tuple[bytes | None, bytes | None]] = [(START_LINE, None), (b"hello\n", None)]
        self.exit_code, self.runs_s, self.oom, self.error = 0, 0.05, False, ""
        self.submission: bytes | None = b"id\n1\n"
        self.mode, self.links = 0o100644, 1
        self.faults: dict[str, list[BaseException | None]] = {}
        self.calls: list[str] = []
        self.containers: dict[str, dict[str, Any]] = {}
        self.volume_names: set[str] = set()
        self.lock = threading.Lock()
        self.api = self
        self.base_url = "http://fake"
        self.images = SimpleNamespace(get=self._image)

    # --- what DockerSandbox asks first ------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        return {"CgroupVersion": "1", "CgroupDriver": "cgroupfs", "Runtimes": {"runc": {}}, "SecurityOptions": []}

    def version(self) -> dict[str, Any]:
        return {"Version": "fake", "ApiVersion": "1.41"}

    def _image(self, name: str) -> Any:
        self._call("image")
        return SimpleNamespace(id="sha256:fake", labels={})

    def close(self) -> None:
        pass

    def _call(self, name: str) -> None:
        with self.lock:
            self.calls.append(name)
            queue = self.faults.get(name)
            fault = queue.pop(0) if queue else None
        if fault is not None:
            raise fault

    # --- containers -------------------------------------------------------------------------------------------

    def create_host_config(self, **settings: Any) -> dict[str, Any]:
        assert not settings.get("auto_remove")
        assert not settings.get("privileged")
        return settings

    def create_container(self, image: str, command: list[str], name: str, **settings: Any) -> dict[str, str]:
        # A create that times out may have succeeded: the container is there.
        self.containers[name] = {"settings": settings, "ended": threading.Event(), "code": None, "started": False}
        self._call("hold" if name.endswith("-hold") else "create")
        return {"Id": name}

    def attach(self, name: str, **_: Any) -> Iterator[tuple[bytes | None, bytes | None]]:
        self._call("attach")
        return self._stream(name)

    def attach_socket(self, name: str, params: dict[str, int]) -> io.BytesIO:
        self._call("attach_socket")
        assert name.endswith("-hold")
        assert params["stdin"]
        assert not self.containers[name]["started"], "it could end before anybody holds it"
        return io.BytesIO()

    def _stream(self, name: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        container = self.containers[name]
        while not container["started"]:
            time.sleep(0.002)
        yield from self.script
        self._call("stream")
        container["ended"].wait()

    def start(self, name: str) -> None:
        self._call("start")
        container = self.containers[name]
        container["started"] = True
        if not name.endswith("-hold"):
            threading.Timer(self.runs_s, self._end, (name, self.exit_code)).start()

    def _end(self, name: str, code: int) -> None:
        container = self.containers.get(name)
        if container and container["code"] is None:
            container["code"] = code
            container["ended"].set()

    def wait(self, name: str, timeout: float | None = None) -> dict[str, int]:
        self._call("wait")
        container = self.containers[name]
        container["ended"].wait()
        return {"StatusCode": container["code"]}

    def kill(self, name: str, signal: str) -> None:
        self._call("kill")
        self._end(name, 137)

    def inspect_container(self, name: str) -> dict[str, Any]:
        self._call("inspect")
        if name not in self.containers:
            raise api_error(404)
        code = self.containers[name]["code"]
        state = {"Running": code is None, "ExitCode": code or 0, "OOMKilled": self.oom, "Error": self.error}
        return {"State": state}

    def remove_container(self, name: str, force: bool, v: bool) -> None:
        assert force
        assert v
        self._call("hold_remove" if name.endswith("-hold") else "remove")
        if name not in self.containers:
            raise api_error(404)
        self._end(name, 137)
        del self.containers[name]

    # --- volumes ----------------------------------------------------------------------------------------------

    def create_volume(self, name: str, **_: Any) -> None:
        self._call("create_volume")
        self.volume_names.add(name)

    def remove_volume(self, name: str) -> None:
        self._call("remove_volume")
        if name not in self.volume_names:
            raise api_error(404)
        self.volume_names.discard(name)

    def exec_create(self, name: str, command: list[str], **_: Any) -> dict[str, str]:
        self._call("exec_create")
        assert name.endswith("-hold"), "nothing of ours runs beside a program"
        return {"Id": "exec"}

    def exec_start(self, exec_id: str, demux: bool) -> tuple[bytes | None, bytes | None]:
        self._call("exec_start")
        if self.submission is None:
            return None, b"missing\n"
        return self.submission or None, f"{self.mode:x} {self.links} {len(self.submission)}\n".encode()
