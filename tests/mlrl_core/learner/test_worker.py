"""Exactly one version per batch, wherever the process is killed.

What gets killed is forked from a server that has imported torch but never computed: forks of a process that has are
not safe."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mlrl_core.config import RunConfig, dump_toml
from mlrl_core.errors import MlrlError
from mlrl_core.learner import versions
from mlrl_core.learner.batch_file import BatchRow, read_batch, write_batch
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.session import Session
from mlrl_core.learner.tensors import TensorBatch
from mlrl_core.learner.versions import VersionStore
from mlrl_core.learner.worker import Refused, Worker

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]
Patch = Callable[[], None]

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["mlrl_core.learner.engine", "transformers", "peft", __name__])


@pytest.fixture
def start(tmp_path: Path, backbone: Path, make_config: MakeConfig) -> Callable[..., Worker]:
    """``start()``: a worker that has loaded; as a new attempt after a crash would."""

    def make(*overrides: str) -> Worker:
        session = Session.create(tmp_path)
        session.config.write_text(dump_toml(make_config(*overrides)))
        worker = Worker(tmp_path, backbone, session)
        worker._load()
        return worker

    return make


@pytest.fixture
def batch(tmp_path: Path, make_rows: MakeRows) -> Callable[[int], dict[str, Any]]:
    """``batch(n)``: the request that makes version n."""

    def make(number: int) -> dict[str, Any]:
        path = tmp_path / "batches" / f"{number:05d}.parquet"
        digest = write_batch(path, make_rows([4, 3, 6], seed=number, version=number - 1))
        return {"batch_id": str(number), "batch_path": str(path), "digest": digest, "parent_version": number - 1}

    return make


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_before(owner: Any, name: str) -> Patch:
    """From now on ``owner.name`` kills the process in place of doing its work."""

    def patch() -> None:
        setattr(owner, name, lambda *_, **__: die())

    return patch


def dying_after(owner: Any, name: str) -> Patch:
    def patch() -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: (original(*a, **k), die()))

    return patch


def dying_at_done() -> None:
    original = versions._write_text

    def write(path: Path, text: str) -> None:
        if path.name == "DONE":
            die()
        original(path, text)

    versions._write_text = write


POINTS: dict[str, tuple[Patch, int]] = {  # and the versions that are there afterwards
    "within the training": (dying_before(Engine, "check_finite"), 0),
    "before the save": (dying_before(Engine, "export_adapter"), 0),
    "between adapter and state": (dying_before(Engine, "save"), 0),
    "before DONE": (dying_at_done, 0),
    "before the rename": (dying_before(versions, "_commit"), 0),
    "after the rename": (dying_after(versions, "_commit"), 1),
    "before the answer": (dying_before(VersionStore, "prune"), 1),
}


def update_and_die(point: str, run_dir: Path, backbone_dir: Path, request: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    session = sorted((run_dir / "learner").glob("attempt-*"))[-1]
    worker = Worker(run_dir, backbone_dir, Session(session))
    worker._load()
    POINTS[point][0]()
    worker.update(**request)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_update_is_applied_exactly_once(
    point: str, start: Callable[..., Worker], batch: Callable[[int], dict[str, Any]], tmp_path: Path
) -> None:
    _, published = POINTS[point]
    worker = start()
    store = VersionStore(tmp_path)
    process = FORKS.Process(target=update_and_die, args=(point, worker.run_dir, worker.backbone_dir, batch(1)))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(list(store.root.glob("[0-9]*/DONE"))) == published + 1

    again = start()
    assert again._engine.version == published
    assert not list(store.root.glob(".partial-*"))
    steps = again._engine.passes
    result = again.update(**batch(1))
    assert (again._engine.passes > steps) == (not published)
    assert result["version"] == 1
    following = again.update(**batch(2))
    assert [m.batch_id for m in store.chain()] == [None, "1", "2"]

    undisturbed = Engine(again.backbone_dir, again.config)
    for number in (1, 2):
        undisturbed.update(read_batch(Path(batch(number)["batch_path"])))
    undisturbed.export_adapter(tmp_path / "expected")
    expected = (tmp_path / "expected" / "adapter_model.safetensors").read_bytes()
    assert (Path(following["version_dir"]) / "adapter" / "adapter_model.safetensors").read_bytes() == expected


def test_version_zero_is_published_and_equals_the_backbone(start: Callable[..., Worker], tmp_path: Path) -> None:
    worker = start()
    (manifest,) = VersionStore(tmp_path).chain()
    assert (manifest.version, manifest.parent, manifest.batch_id) == (0, None, None)
    engine = worker._engine
    assert (manifest.canary_ids, manifest.canary_log_probs) == engine.canary()
    assert not any(p.abs().sum() for n, p in engine.network.trainable("policy").items() if "lora_B" in n)


def test_the_same_batch_twice_is_one_update_and_other_rows_are_refused(
    start: Callable[..., Worker], batch: Callable[[int], dict[str, Any]]
) -> None:
    worker = start()
    first = worker.update(**batch(1))
    passes = worker._engine.passes
    second = worker.update(**batch(1))
    assert (second["version"], second["metrics"]) == (first["version"], first["metrics"])
    assert worker._engine.passes == passes
    with pytest.raises(Refused, match="a batch never changes"):
        worker.update(**{**batch(1), "digest": "0" * 64})
    with pytest.raises(Refused, match="is for version 0, but the newest is 1"):
        worker.update(**{**batch(2), "parent_version": 0})
    with pytest.raises(Refused, match="was the file changed"):
        worker.update(**{**batch(2), "digest": "0" * 64})
    assert worker.update(**batch(2))["version"] == 2


def test_a_sampler_with_other_numbers_is_refused_before_anything_is_trained(
    start: Callable[..., Worker], make_rows: MakeRows, tmp_path: Path
) -> None:
    """The sampler forgets the temperature: one line says what to look at. Its honest numbers are accepted."""
    worker = start("learner.mismatch_limit=0.1")
    engine, rows = worker._engine, make_rows([6, 5, 9])
    tensors = TensorBatch.of(rows)
    path = tmp_path / "batch.parquet"

    def request(temperature: float) -> dict[str, Any]:
        engine.network.temperature = temperature
        log_probs = engine.compute_log_probs(engine.deal(rows, range(3), tensors), tensors)
        engine.network.temperature = worker.config.sampling.temperature
        said = [
            replace(r, rollout_log_probs=tuple(log_probs[i, : len(r.response_ids)].tolist()))
            for i, r in enumerate(rows)
        ]
        return {"batch_id": "1", "batch_path": str(path), "digest": write_batch(path, said), "parent_version": 0}

    with pytest.raises(Refused, match=r"temperature 0\.7"):
        worker.update(**request(1.0))
    assert len(VersionStore(tmp_path).chain()) == 1
    assert worker.update(**request(0.7))["version"] == 1


def test_rate_zero_is_published_as_unchanged_and_a_rate_too_small_is_a_mistake(
    start: Callable[..., Worker], batch: Callable[[int], dict[str, Any]], tmp_path: Path
) -> None:
    start("ppo.learning_rate=0").update(**batch(1))
    zero, one = VersionStore(tmp_path).chain()
    assert one.unchanged
    assert not zero.unchanged
    assert one.adapter_sha256 == zero.adapter_sha256
    start().update(**batch(2))
    assert not VersionStore(tmp_path).chain()[2].unchanged
    with pytest.raises(MlrlError, match="too small to matter"):
        start("ppo.learning_rate=1e-30").update(**batch(3))
    assert len(VersionStore(tmp_path).chain()) == 3


def test_nothing_non_finite_is_published(
    start: Callable[..., Worker],
    batch: Callable[[int], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = start()
    update = Engine.update

    def poison(engine: Engine, rows: list[BatchRow]) -> dict[str, float]:
        metrics = update(engine, rows)
        with torch.no_grad():
            next(p for name, p in engine.network.trainable("policy").items() if "lora_B" in name)[0, 0] = torch.nan
        return metrics

    monkeypatch.setattr(Engine, "update", poison)
    with pytest.raises(MlrlError, match="is not finite"):
        worker.update(**batch(1))
    assert [m.version for m in VersionStore(tmp_path).chain()] == [0]


def test_a_broken_chain_is_an_error(
    start: Callable[..., Worker], batch: Callable[[int], dict[str, Any]], tmp_path: Path
) -> None:
    worker = start()
    for number in (1, 2):
        worker.update(**batch(number))
    middle = tmp_path / "versions" / "00001"
    (middle / "DONE").unlink()
    with pytest.raises(MlrlError, match="without DONE"):
        start()
    (middle / "DONE").touch()
    middle.rename(tmp_path / "elsewhere")
    with pytest.raises(MlrlError, match="expected version 1"):
        start()


def test_old_states_are_pruned_and_the_newest_still_loads(
    start: Callable[..., Worker], batch: Callable[[int], dict[str, Any]], tmp_path: Path
) -> None:
    worker = start("ppo.epochs=1", "ppo.minibatches=1")
    for number in range(1, 13):
        worker.update(**batch(number))
    kept = sorted(int(p.parent.name) for p in (tmp_path / "versions").glob("*/state"))
    assert kept == [0, 10, 11, 12]
    assert len(list((tmp_path / "versions").glob("*/adapter/adapter_model.safetensors"))) == 13
    assert start()._engine.version == 12
