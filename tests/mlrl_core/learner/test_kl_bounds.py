"""What keeps an update close: to the reference and to its own start in the loss, and by going back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mlrl_core.config import RunConfig
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.tensors import TensorBatch
from mlrl_core.ppo.kl import k3
from tests.mlrl_core.learner.test_network import perturb

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]
LENGTHS = [5, 1, 12, 2, 7, 7]
FAR = ("ppo.learning_rate=0.02", "ppo.epochs=6", "ppo.minibatches=1", "ppo.clip=0.9", "ppo.kl_coef=0")


def on_policy(engine: Engine, rows: list[BatchRow]) -> list[BatchRow]:
    """The rows with the log-probabilities that the engine's own policy gives them."""
    from dataclasses import replace

    batch = TensorBatch.of(rows)
    log_probs = engine.compute_log_probs(engine.deal(rows, range(len(rows)), batch), batch)
    return [
        replace(row, rollout_log_probs=tuple(log_probs[i, : len(row.response_ids)].tolist()))
        for i, row in enumerate(rows)
    ]


def divergence(engine: Engine, rows: list[BatchRow]) -> float:
    batch = TensorBatch.of(rows)
    log_probs = engine.compute_log_probs(engine.deal(rows, range(len(rows)), batch), batch)
    log_ratio = (log_probs - batch.rollout_log_probs)[batch.response_mask.bool()].double()
    return float(k3(-log_ratio).mean())


def updated(backbone: Path, config: RunConfig, make_rows: MakeRows) -> tuple[float, dict[str, float]]:
    """Divergence from the sampling policy after one update, and the update's metrics."""
    engine = Engine(backbone, config)
    perturb(engine.network)
    rows = on_policy(engine, make_rows(LENGTHS))
    metrics = engine.update(rows)
    return divergence(engine, rows), metrics


def test_an_update_goes_back_until_it_is_close(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    free, free_metrics = updated(backbone, make_config(*FAR), make_rows)
    bound = free / 10
    kept, metrics = updated(backbone, make_config(*FAR, f"ppo.max_kl={bound}"), make_rows)
    assert free_metrics["learner/kl_halvings"] == 0
    assert metrics["learner/kl_halvings"] >= 1
    assert 0 < kept <= bound
    # A bound that no step comes near changes nothing.
    again, looser = updated(backbone, make_config(*FAR, "ppo.max_kl=1e12"), make_rows)
    assert looser["learner/kl_halvings"] == 0
    assert again == pytest.approx(free)


def test_a_penalty_on_the_step_holds_it_back(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    free, _ = updated(backbone, make_config(*FAR), make_rows)
    held, _ = updated(backbone, make_config(*FAR, "ppo.step_kl_coef=5"), make_rows)
    assert held < free / 2


def test_the_reference_pulls_in_the_loss(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    """With equal rewards there is nothing to learn, and a policy that has left the reference goes back to it."""
    distances = []
    for coefficient in (0.0, 10.0):
        engine = Engine(
            backbone,
            make_config(*FAR[1:4], "ppo.learning_rate=1e-3", "ppo.kl_place=loss", f"ppo.kl_coef={coefficient}"),
        )
        perturb(engine.network)
        rows = on_policy(engine, make_rows(LENGTHS))
        engine.update(rows)
        batch = TensorBatch.of(rows)
        packs = engine.deal(rows, range(len(rows)), batch)
        drift = engine.compute_log_probs(packs, batch) - engine.compute_log_probs(packs, batch, "reference")
        distances.append(float(drift[batch.response_mask.bool()].square().mean()))
    assert distances[1] < distances[0] / 2


def test_in_the_loss_the_reference_leaves_the_reward_alone(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    from mlrl_core.learner.tensors import make_targets

    config = make_config("ppo.kl_place=loss", "ppo.kl_coef=0.5", "ppo.gae_lambda=1.0")
    rows = make_rows(LENGTHS)
    batch = TensorBatch.of(rows)
    zeros = torch.zeros_like(batch.response_mask)
    targets = make_targets(batch, zeros - 3, batch.rollout_log_probs, zeros, config)
    for row, returns in zip(rows, targets.returns, strict=True):
        assert returns[: len(row.response_ids)].tolist() == pytest.approx([row.reward] * len(row.response_ids))


def test_rows_of_older_versions_do_not_use_up_the_bound(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    """The way from an older sampler to this version has been gone: only this update's own counts."""
    from dataclasses import replace

    engine = Engine(backbone, make_config("ppo.learning_rate=0.002", "ppo.kl_coef=0", "ppo.max_kl=0.01"))
    engine.version = 5
    rows = [replace(row, policy_version=2) for row in make_rows(LENGTHS)]  # made-up log-probabilities: far away
    assert divergence(engine, rows) > 1
    before = on_policy(engine, rows)
    metrics = engine.update(rows)
    assert metrics["learner/kl_halvings"] < 8
    assert metrics["adapter/delta_norm"] > 0
    assert 0 < divergence(engine, before) <= 0.01


@pytest.mark.parametrize("rounding", ["learner.autocast=true", "generation.dtype=bfloat16"])
def test_what_the_sampler_rounds_does_not_use_up_the_bound(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, rounding: str
) -> None:
    """A token that the sampler sees a nat off is no way that this update has gone."""
    from dataclasses import replace

    engine = Engine(backbone, make_config("ppo.learning_rate=0.002", "ppo.kl_coef=0", "ppo.max_kl=0.01", rounding))
    perturb(engine.network)
    exact = on_policy(engine, make_rows(LENGTHS))
    rounded = [
        replace(row, rollout_log_probs=(row.rollout_log_probs[0] - 1.5, *row.rollout_log_probs[1:])) for row in exact
    ]
    assert divergence(engine, rounded) > 0.05
    metrics = engine.update(rounded)
    assert metrics["learner/kl_halvings"] < 8
    assert 0 < divergence(engine, exact) <= 0.011
