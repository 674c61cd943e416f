"""What the switches of the update do: rate 0, warm-up, critic-free advantages, importance correction, competitions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.tensors import TensorBatch, make_targets
from tests.mlrl_core.learner.test_engine import LENGTHS, ONE_STEP, MakeConfig, MakeRows, same, weights


def test_rate_zero_leaves_the_policy_bit_identical(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    engine = Engine(backbone, make_config("ppo.learning_rate=0"))
    policy, critic = weights(engine, "policy"), weights(engine, "critic")
    metrics = engine.update(make_rows(LENGTHS))
    assert same(policy, weights(engine, "policy"))
    assert not same(critic, weights(engine, "critic"))
    assert metrics["adapter/delta_norm"] == 0
    assert metrics["actor/trained"] == 0
    assert metrics["actor/entropy"] > 0  # still measured
    assert engine.version == 1


@pytest.mark.parametrize(("overrides", "spread"), [((), False), (("ppo.critic_warmup_updates=1",), True)])
def test_the_policy_waits_without_a_signal_and_while_the_critic_warms_up(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, overrides: tuple[str, ...], spread: bool
) -> None:
    engine = Engine(backbone, make_config(*overrides))
    rows = make_rows(LENGTHS)
    equal = rows if spread else [replace(row, reward=-10.0, outcome="timeout") for row in rows]
    policy = weights(engine, "policy")
    assert engine.update(equal)["critic/grad_norm"] > 0
    assert same(policy, weights(engine, "policy"))
    assert engine.update(rows)["actor/trained"] == 1
    assert not same(policy, weights(engine, "policy"))


@pytest.mark.parametrize("advantage", ["group", "rloo"])
def test_without_a_critic_silent_groups_leave_the_denominator(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, advantage: str
) -> None:
    """Rows of a constant group change nothing but their own measurements."""
    config = make_config(*ONE_STEP, f"ppo.advantage={advantage}", "ppo.kl_coef=0.0")
    rows = [replace(row, reward=float(i)) for i, row in enumerate(make_rows([4, 3, 6, 5], prompts=1))]
    silent = [
        replace(row, experience_id=f"s{i}", prompt_ids=(3, 3, 3), reward=-10.0)
        for i, row in enumerate(make_rows([8, 9], prompts=1, seed=5))
    ]
    alone, mixed = Engine(backbone, config), Engine(backbone, config)
    critic = weights(alone, "critic")
    first, second = alone.update(rows), mixed.update([*rows, *silent])
    assert first["actor/grad_norm"] > 0
    assert second["actor/grad_norm"] == pytest.approx(first["actor/grad_norm"], rel=1e-5)
    assert same(critic, weights(alone, "critic"))
    assert first["critic/grad_norm"] == 0
    nothing = Engine(backbone, config).update([replace(row, reward=-float(i < 1)) for i, row in enumerate(silent[:1])])
    assert nothing["adapter/delta_norm"] == 0


def test_importance_correction_recovers_the_update_of_the_learners_own_numbers(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    """A sampler off by a constant factor per token: the ratio is 1 again, the loss carries the factor."""
    none, corrected = (
        make_config(*ONE_STEP, *extra, "ppo.kl_coef=0.0", "ppo.max_grad_norm=1e9")
        for extra in ((), ("ppo.importance_correction=tis_token",))
    )
    engine = Engine(backbone, corrected)
    rows = make_rows([4, 3, 6, 5])
    batch = TensorBatch.of(rows)
    own = engine.compute_log_probs(engine.deal(rows, range(4), batch), batch)
    exact = [replace(r, rollout_log_probs=tuple(own[i, : len(r.response_ids)].tolist())) for i, r in enumerate(rows)]
    shifted = [replace(r, rollout_log_probs=tuple(x - 0.25 for x in r.rollout_log_probs)) for r in exact]
    plain = Engine(backbone, none).update(exact)
    result = engine.update(shifted)
    assert result["mismatch_kl/mean"] == pytest.approx(math.expm1(0.25) - 0.25, rel=1e-3)
    assert result["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
    assert result["actor/grad_norm"] == pytest.approx(math.exp(0.25) * plain["actor/grad_norm"], rel=1e-3)
    assert Engine(backbone, none).update(shifted)["actor/ppo_kl"] > 0.01


def test_each_competition_is_whitened_by_itself(make_config: MakeConfig, make_rows: MakeRows) -> None:
    """Rewards a thousand times larger elsewhere change nothing here; a competition without a signal gets none."""
    rows = [replace(row, duration_weight=1.0) for row in make_rows([3, 2, 4, 5, 2, 3])]
    rewards = [0.1, 0.9, 0.4, 100.0, 900.0, 400.0]
    names = ["small"] * 3 + ["large"] * 3
    mixed = [replace(r, reward=x, competition_id=c) for r, x, c in zip(rows, rewards, names, strict=True)]
    config = make_config("ppo.kl_coef=0.01")

    def advantages(some: list[BatchRow]) -> torch.Tensor:
        batch = TensorBatch.of(some)
        zeros = torch.zeros_like(batch.response_mask)
        return make_targets(batch, zeros, batch.rollout_log_probs, zeros, config).advantages

    together = advantages(mixed)
    for part in (slice(0, 3), slice(3, 6)):
        alone = advantages(mixed[part])
        torch.testing.assert_close(together[part, : alone.shape[1]], alone)
    flat = [replace(row, reward=1.0) if row.competition_id == "small" else row for row in mixed]
    assert not advantages(flat)[:3].any()
    torch.testing.assert_close(advantages(flat)[3:], together[3:])
