"""One container's life: create, attach, start, watch, kill, inspect, remove. Every wait has an end.

Facts that shape it (measured, docker 20.10): attach comes before start, or the first output is lost; the stream is
read for ever, or kill and inspect hang; the end of the stream is not the end of the program, only ``wait`` is;
``wait`` with a time-out raises ConnectionError; a kill may block, so it has a thread of its own.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlrl_core.errors import InfraError
from mlrl_core.sandbox.engine import engine_errors

KILL_CALL_S = 10.0
REMOVE_S = 10.0
DRAIN_S = 5.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    """The program ended at monotonic time ``at`` (seen by this host)."""

    at: float


class Container:
    """``events`` receives ``Ended`` once. ``on_output(is_stdout, data)`` is called from the reader's thread."""

    def __init__(self, client: Any, name: str, on_output: Callable[[bool, bytes], None]) -> None:
        self._api, self.name = client.api, name
        self._on_output = on_output
        self.events: queue.SimpleQueue[Ended | InfraError] = queue.SimpleQueue()
        self.id = ""
        self.output_lost = False
        self._stream: Any = None
        self._reader: threading.Thread | None = None
        self._stop = threading.Event()

    def create(self, **settings: Any) -> None:
        """Create it under its unique name. A create that failed half-way is removed by name."""
        try:
            with engine_errors("creating a container"):
                self.id = self._api.create_container(name=self.name, **settings)["Id"]
        except InfraError:
            self.id = self.name
            with contextlib.suppress(InfraError):
                self.remove()
            raise

    def start(self) -> None:
        """Attach, then start, then watch. Raises InfraError when the engine refuses."""
        with engine_errors("attaching to a container"):
            self._stream = self._api.attach(self.id, stdout=True, stderr=True, stream=True, demux=True)
        self._reader = self._thread(self._read, "read")
        with engine_errors("starting a container"):
            self._api.start(self.id)
        self._thread(self._wait, "wait")

    def _thread(self, target: Callable[[], None], what: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"mlrl-{what}-{self.name[-8:]}", daemon=True)
        thread.start()
        return thread

    def _read(self) -> None:
        try:
            for out, err in self._stream:
                if out:
                    self._on_output(True, out)
                if err:
                    self._on_output(False, err)
        except Exception:  # whatever the transport raises: the run is judged by `wait`, the output is incomplete
            self.output_lost = True

    def _wait(self) -> None:
        while not self._stop.is_set():
            try:
                with engine_errors("waiting for a container"):
                    self._api.wait(self.id, timeout=None)
                self.events.put(Ended(time.monotonic()))
                return
            except InfraError as error:
                # The engine may be restarting, or the transport gave up: ask for the state until the deadline.
                try:
                    if not self.inspect()["Running"]:
                        self.events.put(Ended(time.monotonic()))
                        return
                except InfraError:
                    self.events.put(error)
                self._stop.wait(_POLL_S)

    def kill(self) -> None:
        """Ask for SIGKILL, in a thread of its own: the call can block as long as the engine likes."""

        def call() -> None:
            with contextlib.suppress(InfraError), engine_errors("killing a container"):
                self._api.kill(self.id, "SIGKILL")

        self._thread(call, "kill").join(KILL_CALL_S)

    def inspect(self) -> dict[str, Any]:
        """The engine's ``State``. Raises InfraError."""
        with engine_errors("inspecting a container"):
            return dict(self._api.inspect_container(self.id)["State"])

    def drain(self) -> None:
        """Wait for the reader after the end; a stream that stays open is closed and counted as lost."""
        if self._reader is None:
            return
        self._reader.join(DRAIN_S)
        if self._reader.is_alive():
            self.output_lost = True
            with contextlib.suppress(Exception):
                self._stream.close()
            self._reader.join(1)

    def remove(self) -> None:
        """Remove it with its anonymous volumes, whatever its state. Raises InfraError when it stays."""
        import docker

        self._stop.set()
        if not self.id:
            return
        end = time.monotonic() + REMOVE_S
        while True:
            try:
                with engine_errors("removing a container"):
                    self._api.remove_container(self.id, force=True, v=True)
                return
            except InfraError as error:
                cause = error.__cause__
                if isinstance(cause, docker.errors.NotFound):
                    return
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)  # 409: a removal is under way already
