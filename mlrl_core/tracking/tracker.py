"""One guarded writer: a bounded queue in front of a thread that talks to MLflow.

Training hands over and goes on. A dead, slow or broken MLflow costs entries (counted), never time or a step;
everything it would have shown can be rebuilt from the run directory.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from mlrl_core.config.root import TrackingConfig
from mlrl_core.errors import MlrlError

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]

_log = logging.getLogger(__name__)
_QUEUE_SIZE = 256
_STORES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")
_END_LIMIT_S = 10.0
_KILLED_LIMIT_S = 3.0
_FAILURES_TO_GIVE_UP = 5

# A default client retries a dead server for four minutes per call.
_CLIENT_ENV = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",  # its own handler writes to the terminal, into the live display
    "GIT_PYTHON_REFRESH": "quiet",
}


class Backend(Protocol):
    """What the writer thread drives (``mlflow_backend.MlflowBackend``; another one in tests)."""

    run_id: str

    def open(self, params: Mapping[str, object], tags: Mapping[str, str]) -> None: ...
    def log_metrics(self, step: int, metrics: Mapping[str, float], at: float) -> None: ...
    def log_file(self, path: Path, folder: str) -> None: ...
    def set_tag(self, key: str, value: str) -> None: ...
    def end(self, status: EndStatus) -> None: ...


def tracking_uri(config: TrackingConfig, run_path: Path) -> str:
    """The store's address: the configured one, else sqlite beside the run directory.

    Raises MlrlError for a plain folder (mlflow's file store is deprecated and refuses to open) and for what is no
    store of mlflow's.
    """
    uri = config.uri or f"sqlite:///{run_path.parent / 'mlflow.db'}"
    if "://" not in uri or uri.startswith("file:"):
        raise MlrlError(
            f"tracking.uri = {uri}: a folder is no store, use sqlite:///{Path(uri.removeprefix('file:')).name}.db "
            "or the http address of an mlflow server"
        )
    if uri.partition("://")[0].partition("+")[0] not in _STORES:
        raise MlrlError(f"tracking.uri = {uri}: mlflow has no such store, use one of {', '.join(_STORES)}")
    return uri


class Tracker:
    """Tracks one run. Every method returns at once; ``end`` waits at most ten seconds for what is queued."""

    def __init__(self, backend: Backend | None, params: Mapping[str, object], tags: Mapping[str, str]) -> None:
        self.dropped = 0
        self._backend = backend
        self._queue: queue.Queue[tuple[str, tuple[Any, ...]] | None] = queue.Queue(_QUEUE_SIZE)
        self._broken = backend is None
        self._opened = threading.Event()
        if backend is not None:
            # A daemon: a call that hangs in MLflow must not keep the process alive.
            self._thread = threading.Thread(target=self._write, args=(params, tags), name="tracker", daemon=True)
            self._thread.start()

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, once it is open; None while it isn't, or when tracking is off."""
        return self._backend.run_id if self._backend is not None and self._opened.is_set() else None

    @property
    def healthy(self) -> bool:
        """Whether the run is open and every entry so far has been taken."""
        return self._opened.is_set() and not self._broken and self.dropped == 0

    def log_metrics(self, step: int, metrics: Mapping[str, float], at: float) -> None:
        """One step's metrics in one call. ``at``: epoch seconds, fixed per step, so a repeated step changes nothing."""
        self._put("log_metrics", step, dict(metrics), at)

    def log_file(self, path: Path, folder: str = "") -> None:
        """An artifact. The file must stay as it is until the run ends."""
        self._put("log_file", path, folder)

    def set_tag(self, key: str, value: str) -> None:
        """A tag of the run."""
        self._put("set_tag", key, value)

    def end(self, status: EndStatus) -> None:
        """Flush and close the run with its final status; gives up after ten seconds, after three when it was killed:
        whoever pressed Ctrl-C is waiting."""
        if self._backend is None:
            return
        deadline = time.monotonic() + (_KILLED_LIMIT_S if status == "KILLED" else _END_LIMIT_S)
        for item in (("end", (status,)), None):
            try:
                self._queue.put(item, timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Full:
                break
        self._thread.join(max(deadline - time.monotonic(), 0.01))
        lost = self.dropped + self._queue.qsize()
        if lost or self._thread.is_alive() or self._broken:
            _log.warning("mlflow: %d entries were not written; the run directory holds everything", lost)

    def _put(self, method: str, *arguments: Any) -> None:
        if self._backend is None:
            return
        if self._broken:
            self.dropped += 1
            return
        try:
            self._queue.put_nowait((method, arguments))
        except queue.Full:
            self.dropped += 1

    def _write(self, params: Mapping[str, object], tags: Mapping[str, str]) -> None:
        assert self._backend is not None
        try:
            self._backend.open(params, tags)
        except Exception as error:  # whatever MLflow raises: training goes on without it
            self._broken = True
            _log.warning("mlflow: this run is not tracked (%s)", _one_line(error))
        else:
            self._opened.set()
        failures = 0
        while (item := self._queue.get()) is not None:
            method, arguments = item
            if self._broken:
                self.dropped += method != "end"
                continue
            try:
                getattr(self._backend, method)(*arguments)
                failures = 0
            except Exception as error:
                failures += 1
                self.dropped += 1
                _log.warning("mlflow: %s was not written (%s)", method, _one_line(error))
                if failures >= _FAILURES_TO_GIVE_UP:
                    self._broken = True
                    _log.warning("mlflow: given up after %d failures in a row", failures)


def open_tracker(
    config: TrackingConfig, run_path: Path, params: Mapping[str, object], tags: Mapping[str, str]
) -> Tracker:
    """The tracker of a run, opening (or, after a resume, reopening) its MLflow run in the background."""
    if not config.enabled:
        return Tracker(None, params, tags)
    for key, value in _CLIENT_ENV.items():
        os.environ.setdefault(key, value)
    from mlrl_core.tracking.mlflow_backend import MlflowBackend

    backend = MlflowBackend(tracking_uri(config, run_path), config.experiment, run_path.name)
    return Tracker(backend, params, tags)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """``{"ppo": {"clip": .2}}`` as ``{"ppo.clip": .2}``."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
