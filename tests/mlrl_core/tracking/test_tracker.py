"""Tracking against a real sqlite store, a dead server and a backend that hangs."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlrl_core.config.root import TrackingConfig
from mlrl_core.errors import MlrlError
from mlrl_core.experience.statistics import step_statistics
from mlrl_core.experience.store import ExperienceStore
from mlrl_core.tracking import Tracker, open_tracker, tracking_uri
from mlrl_core.tracking.names import (
    BATCH_KEYS,
    BEST_KEY,
    BEST_REPORT_KEY,
    CUMULATIVE_KEYS,
    FLAG_KEYS,
    LEARNER_KEYS,
    NONFINITE_KEY,
    OUTCOME_KEYS,
    WAVE_KEYS,
    Cumulative,
    step_metrics,
)
from mlrl_core.tracking.tracker import flatten
from tests.fakes import experience


def _tags(run: Path) -> dict[str, str]:
    return {"run_path": str(run), "seed": "0"}


def _wait_open(tracker: Tracker, limit_s: float = 90) -> None:
    deadline = time.monotonic() + limit_s
    while tracker.run_id is None:
        assert time.monotonic() < deadline, "the MLflow run did not open"
        time.sleep(0.1)


def test_a_run_is_written_closed_and_reopened(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "code.py").write_text("print(1)")
    first = open_tracker(TrackingConfig(), run, {"ppo.clip": 0.2}, _tags(run))
    first.log_metrics(1, {"reward/mean": -3.0}, at=1000.0)
    first.log_metrics(1, {"reward/mean": -3.0}, at=1000.0)
    first.log_file(run / "code.py", "best")
    _wait_open(first)
    first.end("KILLED")
    client = MlflowClient(tracking_uri(TrackingConfig(), run))
    assert client.get_run(str(first.run_id)).info.status == "KILLED"

    second = open_tracker(TrackingConfig(), run, {"ppo.clip": 0.2, "steps": 4}, _tags(run))
    _wait_open(second)
    assert client.get_run(str(first.run_id)).info.status == "RUNNING"
    second.log_metrics(2, {"reward/mean": -1.0}, at=1001.0)
    second.end("FINISHED")
    assert second.run_id == first.run_id
    assert first.healthy
    assert second.healthy
    (stored,) = client.search_runs([client.get_experiment_by_name("mlrl").experiment_id])  # type: ignore[union-attr]
    assert stored.info.status == "FINISHED"
    assert stored.data.params == {"ppo.clip": "0.2", "steps": "4"}
    points = client.get_metric_history(stored.info.run_id, "reward/mean")
    assert [(p.step, p.value) for p in points] == [(1, -3.0), (2, -1.0)]
    assert [f.path for f in client.list_artifacts(stored.info.run_id, "best")] == ["best/code.py"]
    assert (tmp_path / "runs" / "mlartifacts").is_dir()


@pytest.mark.slow
def test_parallel_first_starts_share_one_store(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from mlrl_core.config.root import TrackingConfig; from mlrl_core.tracking import open_tracker\n"
        "run = Path(sys.argv[1]); run.mkdir()\n"
        "t = open_tracker(TrackingConfig(), run, {'a': 1}, {'run_path': str(run)})\n"
        "t0 = time.monotonic()\n"
        "while t.run_id is None and time.monotonic() - t0 < 150: time.sleep(.1)\n"
        "t.log_metrics(1, {'x': 1.0}, 5.0); t.end('FINISHED'); sys.exit(0 if t.healthy else 1)\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / f"r{i}")]) for i in range(4)]
    assert [child.wait(200) for child in children] == [0, 0, 0, 0]


def test_a_dead_server_costs_nothing_but_entries(tmp_path: Path) -> None:
    started = time.monotonic()
    tracker = open_tracker(TrackingConfig(uri="http://127.0.0.1:9"), tmp_path / "run", {}, _tags(tmp_path / "run"))
    for step in range(1000):
        tracker.log_metrics(step, {"x": 1.0}, at=1.0)
    assert time.monotonic() - started < 10
    tracker.end("FINISHED")
    assert time.monotonic() - started < 40
    assert tracker.dropped > 0
    assert not tracker.healthy


class _Hanging:
    run_id = "x"

    def __init__(self) -> None:
        self.release = threading.Event()

    def open(self, params: Mapping[str, object], tags: Mapping[str, str]) -> None: ...
    def log_metrics(self, step: int, metrics: Mapping[str, float], at: float) -> None:
        self.release.wait(60)

    def log_file(self, path: Path, folder: str) -> None: ...
    def set_tag(self, key: str, value: str) -> None: ...
    def end(self, status: str) -> None: ...


def test_a_call_that_hangs_never_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlrl_core.tracking.tracker._END_LIMIT_S", 0.5)
    backend = _Hanging()
    tracker = Tracker(backend, {}, {})
    started = time.monotonic()
    for step in range(500):
        tracker.log_metrics(step, {"x": 1.0}, at=1.0)
    tracker.end("FINISHED")
    assert time.monotonic() - started < 20
    assert tracker.dropped >= 500 - 257
    backend.release.set()


def test_tracking_off_does_nothing(tmp_path: Path) -> None:
    tracker = open_tracker(TrackingConfig(enabled=False), tmp_path / "run", {}, {})
    tracker.log_metrics(1, {"x": 1.0}, at=1.0)
    tracker.end("FINISHED")
    assert tracker.run_id is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["./mlruns", "file:///tmp/mlruns", "/abs/mlruns"])
def test_a_folder_is_no_store(uri: str, tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="sqlite:///"):
        tracking_uri(TrackingConfig(uri=uri), tmp_path / "run")


def test_step_metrics_keep_to_the_known_keys_and_count_what_is_not_finite(tmp_path: Path) -> None:
    from mlrl_core.config import load_config
    from mlrl_core.experience import RunDirectory

    store = ExperienceStore(RunDirectory.create(tmp_path / "run", load_config("nano")))
    store.append(experience(1, 0))
    statistics = step_statistics(store.frame([1]), 1)
    metrics = step_metrics(
        statistics,
        {"actor/ppo_kl": 0.01, "actor/grad_norm": float("inf"), "made/up": 1.0},
        Cumulative(1.0, 2.0, 3, 4),
    )
    known = {*WAVE_KEYS, *OUTCOME_KEYS.values(), *CUMULATIVE_KEYS, *LEARNER_KEYS, *BATCH_KEYS, NONFINITE_KEY}
    known |= {*FLAG_KEYS.values(), BEST_KEY, BEST_REPORT_KEY}
    assert set(metrics) <= known
    assert metrics["actor/ppo_kl"] == 0.01
    assert metrics[NONFINITE_KEY] == 1
    assert "actor/grad_norm" not in metrics
    assert "reward/valid_sem" not in metrics  # one valid solution has no standard error
    assert metrics["cum/wall_s"] == 2.0


def test_every_key_that_the_learner_writes_is_known() -> None:
    folder = Path(__file__).parents[3] / "mlrl_core" / "learner"
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    families = "actor|critic|learner|mismatch_kl|sampling|timing_s|adapter|advantage|duration_weight|rollout_is_ess"
    written = set(re.findall(rf'"((?:{families})(?:/\w+)+)"', text)) | {"rollout_is_ess"}
    assert len(written) > 20
    assert written <= LEARNER_KEYS


def test_importing_the_package_imports_no_mlflow() -> None:
    script = "import sys, mlrl_core.tracking; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_the_fluent_api_is_never_used() -> None:
    root = Path(__file__).parents[3]
    for folder in ("mlrl_core", "tasks", "flows"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text()
            assert "mlflow.start_run" not in text, path
            assert "mlflow.log_" not in text.replace("``mlflow.log_metric``", ""), path


def test_flatten() -> None:
    assert flatten({"a": 1, "b": {"c": {"d": "x"}, "e": ()}}) == {"a": 1, "b.c.d": "x", "b.e": ()}
