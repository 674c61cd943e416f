"""The only module that touches mlflow: an explicit run id in every call, no active run, no global state.

The fluent API (``mlflow.log_metric``) is never used: its active run is per thread, and a call from another thread
silently starts a stray run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.locking import locked

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from mlrl_core.tracking.tracker import EndStatus

_METRICS_PER_CALL = 1000
_PARAMS_PER_CALL = 100
_PARAM_CHARS = 500  # longer ones are cut without an error by some servers; ours never are that long
_INIT_LIMIT_S = 120.0


class MlflowBackend:
    """One MLflow run of one training run. Not thread-safe: the tracker's thread is the one writer."""

    def __init__(self, uri: str, experiment: str, run_key: str) -> None:
        self.uri = uri
        self.run_id = ""
        self._experiment = experiment
        self._run_key = run_key
        self._client: MlflowClient

    def open(self, params: Mapping[str, object], tags: Mapping[str, str]) -> None:
        """Create the run, or reopen the one that carries this run key. Only params that it lacks are written."""
        logging.getLogger("alembic").setLevel(logging.WARNING)  # migrations chat at INFO
        if self.uri.startswith("sqlite:"):
            lock = Path(self.uri.removeprefix("sqlite:///") + ".lock")
            lock.parent.mkdir(parents=True, exist_ok=True)
            with locked(lock, _INIT_LIMIT_S, f"opening {self.uri}"):
                self._connect()
        else:
            self._connect()
        experiment_id = self._experiment_id()
        found = self._client.search_runs(
            [experiment_id], f"tags.run_key = '{self._run_key}' and tags.run_path = '{tags['run_path']}'", max_results=1
        )
        if found:
            self.run_id = found[0].info.run_id
            self._client.update_run(self.run_id, status="RUNNING")
            known: Mapping[str, str] = found[0].data.params
        else:
            every = {**tags, "run_key": self._run_key}
            run = self._client.create_run(experiment_id, tags=every, run_name=self._run_key)
            self.run_id = run.info.run_id
            known = {}
        self._log_params({key: value for key, value in params.items() if key not in known})

    def log_metrics(self, step: int, metrics: Mapping[str, float], at: float) -> None:
        """One step. Identical points sent twice stay one, so a repeated step changes nothing."""
        from mlflow.entities import Metric

        stamp = int(at * 1000)
        points = [Metric(key, value, stamp, step) for key, value in metrics.items()]
        for start in range(0, len(points), _METRICS_PER_CALL):
            self._client.log_batch(self.run_id, metrics=points[start : start + _METRICS_PER_CALL])

    def log_file(self, path: Path, folder: str) -> None:
        """One artifact file."""
        self._client.log_artifact(self.run_id, str(path), folder or None)

    def set_tag(self, key: str, value: str) -> None:
        """One tag."""
        self._client.set_tag(self.run_id, key, value)

    def end(self, status: EndStatus) -> None:
        """Close the run."""
        self._client.set_terminated(self.run_id, status)

    def _connect(self) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self.uri)
        # The first call migrates a fresh sqlite file: under the lock, or parallel first starts break each other.
        self._client.search_experiments(max_results=1)

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.uri.startswith("sqlite:"):  # else artifacts would land in the working directory of the moment
            location = (Path(self.uri.removeprefix("sqlite:///")).parent / "mlartifacts").absolute().as_uri()
        try:
            return str(self._client.create_experiment(self._experiment, artifact_location=location))
        except MlflowException:  # another run made it meanwhile
            found = self._client.get_experiment_by_name(self._experiment)
            if found is None:
                raise
            return str(found.experiment_id)

    def _log_params(self, params: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        entries = [Param(key, str(value)[:_PARAM_CHARS]) for key, value in params.items()]
        for start in range(0, len(entries), _PARAMS_PER_CALL):
            self._client.log_batch(self.run_id, params=entries[start : start + _PARAMS_PER_CALL])
