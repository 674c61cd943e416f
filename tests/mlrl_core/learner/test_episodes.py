"""Returns, baselines and weights of episodes of two actions, by hand (method.md sections 1 and 2.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow, batch_digest, check_rows, read_batch, write_batch
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.tensors import Targets, TensorBatch, make_targets

SOLVE = (1, 2)


def _row(number: int, prompt: tuple[int, ...], reward: float, tokens: int = 2, weight: float = 1.0) -> BatchRow:
    return BatchRow(
        experience_id=f"00001-{number:03d}",
        competition_id="toy",
        prompt_ids=prompt,
        response_ids=(5,) * tokens,
        rollout_log_probs=(-1.0,) * tokens,
        reward=float(reward),
        duration_s=1.0,
        duration_weight=weight,
        policy_version=0,
        outcome="graded",
        finish_reason="stop",
    )


def _episodes(*rewards: tuple[float, float], weights: tuple[float, float] = (1.0, 1.0)) -> list[BatchRow]:
    """Solution and improvement of each episode: rewards R1 and R2."""
    rows = []
    for i, (first, second) in enumerate(rewards):
        solve = _row(2 * i, SOLVE, first, weight=weights[0])
        improve = _row(2 * i + 1, (1, 3, i), second, weight=weights[1])
        rows.append(dataclasses.replace(solve, next_id=improve.experience_id))
        rows.append(dataclasses.replace(improve, asked="improve"))
    return rows


def _targets(rows: list[BatchRow], config: RunConfig, values: torch.Tensor | None = None, ref: float = -1.0) -> Targets:
    batch = TensorBatch.of(rows)
    zeros = torch.zeros_like(batch.response_mask)
    reference = batch.response_mask * ref
    return make_targets(batch, reference, batch.rollout_log_probs, zeros if values is None else values, config)


def _per_row(targets: Targets) -> list[float]:
    return [round(x, 5) for x in targets.advantages[:, 0].tolist()]


def test_leave_one_out_compares_returns_with_returns_and_improvements_with_improvements(
    make_config: Callable[..., RunConfig],
) -> None:
    """Returns from the first action on: 1 + 5, 2 + 0, 0 + 1. Improvements: 5, 0, 1, each to a prompt of its own."""
    rows = _episodes((1, 5), (2, 0), (0, 1))
    targets = _targets(rows, make_config("ppo.advantage=rloo", "improve.episode=two_step"))
    assert _per_row(targets) == [6 - 1.5, 5 - 0.5, 2 - 3.5, 0 - 3, 1 - 4, 1 - 2.5]
    assert targets.policy_mask.all()


def test_an_improvement_weighs_by_its_own_duration(make_config: Callable[..., RunConfig]) -> None:
    rows = _episodes((1, 5), (2, 0), weights=(0.5, 1.5))
    targets = _targets(rows, make_config("ppo.advantage=rloo", "improve.episode=two_step"))
    assert _per_row(targets) == [0.5 * 4, 1.5 * 5, 0.5 * -4, 1.5 * -5]


def test_the_kl_of_the_improvement_is_part_of_the_first_return(make_config: Callable[..., RunConfig]) -> None:
    """log p - log p_ref is 1 at each of two tokens; the first row's return bears that of both rows."""
    config = make_config("ppo.advantage=rloo", "improve.episode=two_step", "ppo.kl_coef=0.1", "ppo.kl_place=reward")
    rows = _episodes((1, 5), (2, 0))
    rows[3] = dataclasses.replace(rows[3], response_ids=(5,) * 4, rollout_log_probs=(-1.0,) * 4)
    targets = _targets(rows, config, ref=-2.0)
    first, second = 6 - 0.4, 2 - 0.6
    assert _per_row(targets) == [4.2, 5.2, -4.2, -5.2]
    assert first - second == pytest.approx(4.2)


def test_alone_among_its_kind_an_improvement_says_nothing(make_config: Callable[..., RunConfig]) -> None:
    targets = _targets([*_episodes((1, 5)), _row(7, SOLVE, 3)], make_config("ppo.advantage=rloo"))
    assert _per_row(targets) == [3, 0, -3]
    assert targets.policy_mask[:, 0].tolist() == [1, 0, 1]


def test_independent_improvements_have_a_baseline_as_well(make_config: Callable[..., RunConfig]) -> None:
    """Two share a prompt and are compared with each other; the others are compared with all that are alone."""
    kinds: list[tuple[tuple[int, ...], float]] = [((9, 1), 1), ((9, 1), 2), ((9, 2), 4), ((9, 3), 8), ((9, 4), 6)]
    rows = [_row(i, prompt, reward) for i, (prompt, reward) in enumerate(kinds)]
    rows = [dataclasses.replace(row, asked="improve") for row in rows]
    targets = _targets(rows, make_config("ppo.advantage=rloo"))
    assert _per_row(targets) == [-1, 1, -3, 3, 0]
    mending = [dataclasses.replace(row, asked="mend") if row.reward in (4, 6) else row for row in rows]
    assert _per_row(_targets(mending, make_config("ppo.advantage=rloo"))) == [-1, 1, -2, 0, 2]
    other = [dataclasses.replace(row, competition_id="b") if row.prompt_ids == (9, 4) else row for row in rows]
    assert _per_row(_targets(other, make_config("ppo.advantage=rloo"))) == [-1, 1, -4, 4, 0]


@pytest.mark.parametrize(("lam", "first"), [(1.0, (4.5, 4.0)), (0.0, (0.5, 0.0))])
def test_a_critic_sees_the_episode_as_one_sequence(
    make_config: Callable[..., RunConfig], lam: float, first: tuple[float, float]
) -> None:
    """Values 0.5, 1 on the first row and 1, 2 on the second; rewards 0 and 5. Centred by kind, then whitened together;
    the returns are untouched by either."""
    rows = _episodes((0, 5), (0, 1))
    values = torch.tensor([[0.5, 1.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    config = make_config(f"ppo.gae_lambda={lam:g}", "improve.episode=two_step", "ppo.kl_coef=0")
    targets = _targets(rows, config, values)
    raw = targets.returns - values
    assert raw[0].tolist() == pytest.approx(first)
    assert raw[1].tolist() == pytest.approx((4, 3) if lam else (1, 3))
    centred = torch.cat([raw[[0, 2]] - raw[[0, 2]].mean(), raw[[1, 3]] - raw[[1, 3]].mean()])
    expected = centred / centred.square().mean().sqrt()
    torch.testing.assert_close(targets.advantages[[0, 2, 1, 3]], expected, rtol=0, atol=1e-5)


def test_a_new_critic_starts_at_the_mean_return(backbone: Path, make_config: Callable[..., RunConfig]) -> None:
    engine = Engine(backbone, make_config("improve.episode=two_step"))
    rows = _episodes((1, 5), (2, 0))
    engine.update(rows)
    start = engine.network.value_head.bias.item()
    assert start == pytest.approx((6 + 5 + 2 + 0) / 4, abs=0.2)  # moved by the update's own steps since


def test_a_solution_is_learned_for_what_its_improvement_earned(
    backbone: Path, make_config: Callable[..., RunConfig]
) -> None:
    """Own rewards are equal, but what followed differs: only as an episode does the first action learn from it."""
    first = [(7, 8), (9, 10)]
    episodes = _episodes((0, 4), (0, -4))
    rows = [
        dataclasses.replace(row, response_ids=first[i // 2], rollout_log_probs=(-4.0, -4.0)) if i % 2 == 0 else row
        for i, row in enumerate(episodes)
    ]
    apart = [dataclasses.replace(row, next_id=None) for row in rows]

    def gap(trained_on: list[BatchRow]) -> float:
        """By how much log p(good) - log p(bad) has grown, of the two first actions."""
        plain = ("ppo.advantage=rloo", "ppo.kl_coef=0", "ppo.epochs=1", "ppo.minibatches=1")
        engine = Engine(backbone, make_config(*plain))

        def log_probs(of: list[BatchRow]) -> torch.Tensor:
            batch = TensorBatch.of(of)
            return engine.compute_log_probs(engine.deal(of, range(len(of)), batch), batch)

        def difference() -> float:
            good, bad = log_probs([rows[0], rows[2]]).sum(1).tolist()
            return float(good - bad)

        before = difference()
        for _ in range(3):
            known = log_probs(trained_on).tolist()
            own = [
                dataclasses.replace(row, rollout_log_probs=tuple(x)) for row, x in zip(trained_on, known, strict=True)
            ]
            engine.update(own)
        return difference() - before

    together, separate = gap(rows), gap(apart)
    assert together > 0.5
    assert together > separate + 0.5


def test_a_batch_holds_whole_episodes(tmp_path: Path) -> None:
    rows = _episodes((1, 5), (2, 0))
    digest = write_batch(tmp_path / "batch.parquet", rows)
    assert read_batch(tmp_path / "batch.parquet", digest) == rows
    assert batch_digest([dataclasses.replace(row, next_id=None) for row in rows]) != digest
    with pytest.raises(MlrlError, match="00001-001, which is not in the batch"):
        check_rows([rows[0], *rows[2:]])
    with pytest.raises(MlrlError, match="can't go on in 00001-001"):
        check_rows([rows[0], rows[1], dataclasses.replace(rows[2], next_id="00001-001"), rows[3]])
    with pytest.raises(MlrlError, match="can't go on"):
        check_rows([dataclasses.replace(rows[0], next_id=None), dataclasses.replace(rows[1], next_id="00001-000")])
