"""What a run leaves in MLflow, and that a dead MLflow leaves the run alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlrl_core.config.root import TrackingConfig
from mlrl_core.errors import InfraError
from mlrl_core.experience import RunDirectory
from mlrl_core.records import Solution
from mlrl_core.tracking import Tracker, open_tracker, tracking_uri
from mlrl_core.tracking.names import WAVE_KEYS
from tasks.resources import registered
from tasks.sampling import WaveSampler
from tests.fakes import FakeSandbox, fake_resources

pytestmark = pytest.mark.usefixtures("prefect_server")


def _tracker(run: RunDirectory) -> Tracker:
    return open_tracker(TrackingConfig(), run.path, {"steps": 3}, {"run_path": str(run.path)})


def test_one_run_with_one_point_a_step_and_every_solution(run: RunDirectory) -> None:
    from mlflow.tracking import MlflowClient

    from flows.train import train

    tracker = _tracker(run)
    with registered(fake_resources(run, tracker=tracker)):
        train(run_dir=str(run.path))
    client = MlflowClient(tracking_uri(TrackingConfig(), run.path))
    (stored,) = client.search_runs(["1"])
    assert stored.info.status == "FINISHED"
    assert stored.data.tags["run_key"] == run.key
    assert "prefect.flow_run_id" in stored.data.tags
    for key in ("reward/mean", "exec/duration_s_mean", "cum/wall_s", "actor/ppo_kl"):
        points = client.get_metric_history(stored.info.run_id, key)
        assert [point.step for point in points] == [1, 2, 3], key
    of_improving = {key for key in WAVE_KEYS if key.startswith("improve/")} - {"improve/share"}
    assert set(WAVE_KEYS) - set(stored.data.metrics) <= {"reward/valid_sem", *of_improving}
    shards = [f.path for f in client.list_artifacts(stored.info.run_id, "experiences")]
    assert shards == [f"experiences/wave=0000{n}.parquet" for n in (1, 2, 3)]
    names = {f.path for f in client.list_artifacts(stored.info.run_id)}
    assert "learning_curve.png" in names
    assert {f.path for f in client.list_artifacts(stored.info.run_id, "programs")} == {
        "programs/best.py",
        "programs/first_valid.py",
    }


def test_a_failed_run_is_marked_and_gone_on_with_in_the_same_mlflow_run(run: RunDirectory) -> None:
    from mlflow.tracking import MlflowClient

    from flows.train import train

    broken = FakeSandbox(broken=frozenset(f"00002-{slot:03d}" for slot in range(6)))
    first = _tracker(run)
    failing = fake_resources(run, broken, tracker=first)

    def programs(wave: int, policy_version: int, slots: Sequence[int]) -> list[Solution]:
        """What has no program can't fail on the machine."""
        sampled = failing.agent(wave, policy_version, slots)
        return [dataclasses.replace(each, code=each.code or "# graded\nprint(1)\n") for each in sampled]

    failing.sampler = WaveSampler(programs, lambda: failing.stopping, 60)
    with registered(failing), pytest.raises(InfraError):
        train(run_dir=str(run.path))
    client = MlflowClient(tracking_uri(TrackingConfig(), run.path))
    assert client.get_run(str(first.run_id)).info.status == "FAILED"
    second = _tracker(run)
    with registered(fake_resources(run, tracker=second)):
        train(run_dir=str(run.path))
    (stored,) = client.search_runs(["1"])
    assert stored.info.run_id == first.run_id
    assert stored.info.status == "FINISHED"
    assert [p.step for p in client.get_metric_history(stored.info.run_id, "reward/mean")] == [1, 2, 3]


def test_a_dead_mlflow_changes_nothing(run: RunDirectory, tmp_path: Path) -> None:
    from flows.train import train

    dead = open_tracker(TrackingConfig(uri="http://127.0.0.1:9"), run.path, {}, {"run_path": str(run.path)})
    with registered(fake_resources(run, tracker=dead)):
        train(run_dir=str(run.path))
    assert run.published_versions() == [0, 1, 2, 3]
    assert dead.dropped > 0
