"""The docker engine: finding it, asking what it can do, and turning its errors into ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlrl_core.errors import InfraError, MlrlError

CLIENT_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine says of itself. ``local``: it sees this host's files and we may mount there."""

    version: str
    api: str
    cgroup_version: str
    cgroup_driver: str
    rootless: bool
    local: bool
    runtimes: tuple[str, ...]
    cpus: int
    memory: int  # bytes


def connect(url: str, slots: int) -> Any:
    """A client of the engine at ``url`` (empty: $DOCKER_HOST or the usual socket). Raises MlrlError."""
    import docker

    try:
        # attach and wait hold a connection each while a program runs
        client = docker.DockerClient(
            base_url=url or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock",
            timeout=CLIENT_TIMEOUT_S,
            max_pool_size=2 * slots + 8,
        )
        client.ping()
    except Exception as error:  # the SDK lets errors of requests, urllib3 and the socket through
        # The usual case, on a machine without docker, in few words.
        reason = "there is none" if "FileNotFoundError" in str(error) else _last(error)
        raise MlrlError(f"no docker engine answers at {url or 'the usual socket'} ({reason})") from None
    return client


def engine_info(client: Any) -> EngineInfo:
    """Raises InfraError when the engine does not answer."""
    with engine_errors("asking the engine about itself"):
        info, version = client.info(), client.version()
    options = " ".join(info.get("SecurityOptions") or ())
    return EngineInfo(
        version=str(version.get("Version", "unknown")),
        api=str(version.get("ApiVersion", "unknown")),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        cgroup_driver=str(info.get("CgroupDriver", "cgroupfs")),
        rootless="rootless" in options,
        local=os.geteuid() == 0 and str(client.api.base_url).startswith("http+docker://"),
        runtimes=tuple(info.get("Runtimes") or ()),
        cpus=int(info.get("NCPU", 0)),
        memory=int(info.get("MemTotal", 0)),
    )


def find_image(client: Any, name: str) -> tuple[str, dict[str, str]]:
    """(image id, labels) of an image that the engine holds; never pulled. Raises MlrlError."""
    import docker

    try:
        with engine_errors("looking for the image"):
            image = client.images.get(name)
    except docker.errors.ImageNotFound:
        raise MlrlError(f"the engine holds no image '{name}': build it with `mlrl sandbox build`") from None
    return str(image.id), dict(image.labels or {})


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Errors of the SDK and of its transport as InfraError; ``ImageNotFound`` and our own pass."""
    import docker
    import requests
    import urllib3

    try:
        yield
    except docker.errors.ImageNotFound:
        raise
    except (docker.errors.DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise InfraError(f"docker: {doing} failed: {_last(error)}") from error


def _last(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[-1] if text else type(error).__name__)[:300]
