"""A Prefect API for one command: the configured server, or a temporary one that this process owns.

Prefect's own temporary server shares the terminal's process group, so a Ctrl-C ends it before the run has recorded
that it was interrupted, and a killed run leaves it behind. This one is in a session of its own and ends with its
parent, whatever happens to that: it reads its standard input, which the kernel closes. It uses the same database as
``prefect server start``, so the run can be looked at afterwards.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlrl_core.errors import InfraError, MlrlError

_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 5.0
_DRAIN_LIMIT_S = 20.0
_HOST = "127.0.0.1"

_RETRY_AFTER_S = b"0.1"
_RETRIES = "100"

# One command's server schedules nothing and keeps no event feed. What these services write competes for sqlite's one
# lock with the runs themselves, whose client then sleeps for seconds. The recorder of task runs stays.
_IDLE_SERVICES = (
    "EVENT_PERSISTER",
    "TRIGGERS",
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "PAUSE_EXPIRATIONS",
    "CANCELLATION_CLEANUP",
)


@contextmanager
def prefect_api(log_path: Path) -> Iterator[str]:
    """The address of the API to use, set as ``PREFECT_API_URL`` while inside. Enter before prefect is imported.

    Raises MlrlError when a configured server does not answer, InfraError when the temporary one does not start.
    """
    check_configured_api()
    configured = configured_api()
    if configured:
        yield configured
        drain()
        return
    url = f"http://{_HOST}:{_free_port()}/api"
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "flows.server", url],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.environ["PREFECT_API_URL"] = url
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", _RETRIES)
    try:
        _wait_healthy(url, child, log_path)
        yield url
    finally:
        drain()
        os.environ.pop("PREFECT_API_URL", None)
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(_STOP_LIMIT_S)


def check_configured_api() -> None:
    """Raise MlrlError when a Prefect server is configured and does not answer."""
    configured = configured_api()
    if configured and not _healthy(configured):
        raise MlrlError(
            f"the Prefect server at {configured} does not answer: start it, or unset PREFECT_API_URL "
            "(`prefect config unset PREFECT_API_URL`) to train with a temporary one"
        )


def configured_api() -> str:
    """``PREFECT_API_URL`` of the environment, else of Prefect's active profile; empty when there is none.

    Read without importing prefect: its settings are fixed by the import.
    """
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    path = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    try:
        profiles = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError):
        profiles = {}
    active = profiles.get("profiles", {}).get(os.environ.get("PREFECT_PROFILE") or profiles.get("active", ""), {})
    return str(os.environ.get("PREFECT_API_URL") or active.get("PREFECT_API_URL", ""))


def drain(limit_s: float = _DRAIN_LIMIT_S) -> None:
    """Let the client hand over what it has queued: task states and logs travel as events behind the run."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=limit_s)


def _wait_healthy(url: str, child: subprocess.Popen[bytes], log_path: Path) -> None:
    end = time.monotonic() + _START_LIMIT_S
    while not _healthy(url):
        if child.poll() is not None or time.monotonic() > end:
            raise InfraError(f"the temporary Prefect server did not start within {_START_LIMIT_S:g} s: see {log_path}")
        time.sleep(0.2)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _serve(url: str) -> None:
    """The child: serve until the parent's end of standard input closes."""
    servers: list[Any] = []

    def watch() -> None:
        sys.stdin.buffer.read()
        for server in servers:
            server.should_exit = True
        time.sleep(_STOP_LIMIT_S - 1 if servers else 0)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()  # before the imports, which take seconds
    for service in _IDLE_SERVICES:
        os.environ.setdefault(f"PREFECT_SERVER_SERVICES_{service}_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ["PREFECT_UI_API_URL"] = url
    import uvicorn
    from prefect.server.api.server import create_app

    port = int(url.rsplit(":", 1)[1].split("/")[0])
    app = _soon_again(create_app(final=True))
    servers.append(uvicorn.Server(uvicorn.Config(app, host=_HOST, port=port, log_level="warning")))
    servers[0].run()


def _soon_again(app: Any) -> Any:
    """Tell clients to repeat a request soon when sqlite's lock was taken.

    Prefect answers 503 then, and without this header its client sleeps 2, 4, 8 seconds at the start of every sub-flow.
    """

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        async def send_hinted(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 503:
                message = {**message, "headers": [*message["headers"], (b"retry-after", _RETRY_AFTER_S)]}
            await send(message)

        await app(scope, receive, send_hinted if scope["type"] == "http" else send)

    return wrapped


if __name__ == "__main__":
    _serve(sys.argv[1])
