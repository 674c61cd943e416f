"""The update against plain autograd, its invariances, and batches at the edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.packing import pack_rows
from mlrl_core.learner.tensors import TensorBatch
from mlrl_core.ppo.advantages import gae, whiten
from tests.mlrl_core.learner.test_network import perturb, plain_log_probs

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]
LENGTHS = [5, 1, 0, 12, 2, 7, 7]
NAMES = """
actor/pg_loss actor/pg_clipfrac actor/pg_clipfrac_lower actor/ppo_kl actor/ref_kl actor/entropy actor/grad_norm
critic/grad_norm critic/vf_loss critic/vf_clipfrac critic/vf_explained_var learner/skipped_steps
mismatch_kl/mean mismatch_kl/max rollout_is_ess
sampling/importance_ratio/min sampling/importance_ratio/mean sampling/importance_ratio/max
staleness/mean staleness/max duration_weight/max duration_weight/ess
response_length/mean response_length/max response_length/clip_ratio
learner/tokens learner/tokens_per_s learner/rss_gb learner/device_mem_gb
timing_s/logprobs timing_s/values timing_s/train adapter/delta_norm learner/kl_halvings
"""
ONE_STEP = ("ppo.epochs=1", "ppo.minibatches=1")


def weights(engine: Engine, role: str) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in engine.network.trainable(role).items()}  # type: ignore[arg-type]


def gradient_norm(engine: Engine, role: str) -> torch.Tensor:
    gradients = [p.grad for p in engine.network.trainable(role).values()]  # type: ignore[arg-type]
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]).norm()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_one_step_is_the_textbook_step(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    """Loss and gradient norms against a second implementation: a row at a time, padded, no packs."""
    config = make_config(*ONE_STEP, "ppo.kl_coef=0.05", "ppo.max_grad_norm=1e9")
    engine = Engine(backbone, config)
    perturb(engine.network)
    engine.value_bias_set = True
    network, ppo = engine.network, config.ppo
    rows = [row for row in make_rows(LENGTHS, prompts=2) if row.response_ids]
    tokens = sum(len(row.response_ids) for row in rows)

    def hidden_of(row: BatchRow) -> torch.Tensor:
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        return network.peft_model.get_base_model().get_decoder()(input_ids=ids).last_hidden_state[0]

    raw, value_loss = [], torch.tensor(0.0)
    for row in rows:
        n = len(row.response_ids)
        with network.acting("reference"), torch.no_grad():
            reference = plain_log_probs(network, row, config.sampling.temperature)
        with network.acting("critic"):
            states = hidden_of(row)[len(row.prompt_ids) - 1 : -1]
            values = network.value_head(states).squeeze(-1)
        rewards = -0.05 * (torch.tensor(row.rollout_log_probs) - reference)
        rewards[-1] += row.reward
        advantages, returns = gae(rewards[None], values.detach()[None], torch.ones(1, n), ppo.gamma, ppo.gae_lambda)
        raw.append(advantages[0])
        value_loss = value_loss + 0.5 * (values - returns[0]).square().sum() / tokens
    value_loss.backward()
    critic_norm = torch.cat(
        [p.grad.flatten() for p in network.trainable("critic").values() if p.grad is not None]
    ).norm()
    white = whiten(torch.cat(raw)[None], torch.ones(1, tokens))[0].split([len(row.response_ids) for row in rows])
    network.zero_grad(set_to_none=True)
    loss = torch.tensor(0.0)
    for row, advantage in zip(rows, white, strict=True):
        ratio = (plain_log_probs(network, row, config.sampling.temperature) - torch.tensor(row.rollout_log_probs)).exp()
        weighted = advantage * row.duration_weight
        surrogate = torch.maximum(-ratio * weighted, -ratio.clamp(1 - ppo.clip, 1 + ppo.clip) * weighted)
        surrogate = torch.where(weighted < 0, torch.minimum(surrogate, -ppo.dual_clip * weighted), surrogate)
        loss = loss + surrogate.sum() / tokens
    loss.backward()
    policy_norm = torch.cat(
        [p.grad.flatten() for p in network.trainable("policy").values() if p.grad is not None]
    ).norm()
    network.zero_grad(set_to_none=True)

    metrics = engine.update(rows)
    assert metrics["actor/pg_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["actor/grad_norm"] == pytest.approx(policy_norm.item(), rel=1e-4)
    assert metrics["critic/vf_loss"] == pytest.approx(value_loss.item(), rel=1e-5)
    assert metrics["critic/grad_norm"] == pytest.approx(critic_norm.item(), rel=1e-4)
    assert metrics["learner/tokens"] == tokens


def test_no_split_into_micro_batches_changes_the_update(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    rows = make_rows(LENGTHS, prompts=2)
    results = []
    for budget in (1, 15, 10_000):
        engine = Engine(backbone, make_config(f"ppo.micro_batch_tokens={budget}"))
        results.append((engine.update(rows), weights(engine, "policy")))
    for metrics, _ in results[1:]:
        for key in ("actor/pg_loss", "actor/grad_norm", "critic/vf_loss", "critic/grad_norm"):
            assert metrics[key] == pytest.approx(results[0][0][key], rel=1e-5, abs=1e-7)


def test_the_same_batch_is_the_same_update(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    engines = [Engine(backbone, make_config()) for _ in range(2)]
    for engine in engines:
        torch.manual_seed(id(engine) % 1000)  # global random state must not matter
        engine.update(make_rows(LENGTHS))
    assert same(weights(engines[0], "policy"), weights(engines[1], "policy"))
    assert same(weights(engines[0], "critic"), weights(engines[1], "critic"))


@pytest.mark.parametrize("lengths", [[4], [0, 3], [1, 1, 1], [200, 2, 3], [0, 0]])
def test_batches_at_the_edge_are_finite(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, lengths: list[int]
) -> None:
    engine = Engine(backbone, make_config())
    rows = [replace(row, reward=float(-i)) for i, row in enumerate(make_rows(lengths))]
    metrics = engine.update(rows)
    assert all(math.isfinite(value) for value in metrics.values())
    engine.check_finite()
    assert (metrics["learner/steps"] > 0) == (sum(lengths) > 0)


def test_metric_names_are_the_same_in_every_update(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    engine = Engine(backbone, make_config())
    rows = make_rows(LENGTHS)
    first = engine.update(rows)
    second = engine.update([replace(row, reward=0.0) for row in rows])
    assert first.keys() == second.keys()
    for name in NAMES.split():
        assert isinstance(first[name], float), name


def test_own_samples_show_no_mismatch_and_the_reference_never_moves(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    """Sampling from ``engine.model`` between updates is the same policy that the next update trains."""
    engine = Engine(backbone, make_config("ppo.kl_coef=0.5"))
    rows = make_rows(LENGTHS, prompts=2)
    batch = TensorBatch.of(rows)
    packs = pack_rows(rows, range(len(rows)), max(LENGTHS), 1000)
    reference = engine.compute_log_probs(packs, batch, "reference")
    engine.update(rows)
    own = []
    for row in rows:
        with torch.no_grad():
            log_probs = plain_log_probs(engine.network, row, 0.7).tolist() if row.response_ids else []
        own.append(replace(row, rollout_log_probs=tuple(log_probs), policy_version=1))
    metrics = engine.update(own)
    assert metrics["sampling/abs_log_prob_diff"] < 1e-4
    assert metrics["mismatch_kl/max"] < 1e-6
    assert metrics["staleness/max"] == 0
    assert metrics["actor/ref_kl"] != 0
    assert torch.equal(reference, engine.compute_log_probs(packs, batch, "reference"))


def test_gradients_that_stay_non_finite_end_the_run(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    engine = Engine(backbone, make_config())
    with torch.no_grad():
        engine.network.value_head.weight.fill_(math.nan)
    with pytest.raises(MlrlError, match="not finite in 3 steps"):
        engine.update(make_rows(LENGTHS))
    with pytest.raises(MlrlError, match=r"value_head\.weight is not finite"):
        engine.check_finite()


def test_rows_of_another_tokenizer_are_refused(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    rows = [replace(make_rows([1])[0], response_ids=(9999,))]
    with pytest.raises(MlrlError, match="token id 9999"):
        Engine(backbone, make_config()).update(rows)


def test_it_learns_a_token(backbone: Path, make_config: MakeConfig) -> None:
    """Reward 1 for the right first token: from chance to more than 0.9 within 30 updates of 64 samples."""
    engine = Engine(backbone, make_config("ppo.learning_rate=2e-2", "ppo.kl_coef=0.0"))
    prompt, right = (1, 5, 9), 17
    generator = torch.Generator().manual_seed(0)
    share = 0.0
    for update in range(30):
        with torch.no_grad():
            logits = engine.model(input_ids=torch.tensor([prompt])).logits[0, -1] / 0.7
        table = torch.log_softmax(logits, -1)
        share = table[right].exp().item()
        if share > 0.9:
            break
        drawn = torch.multinomial(table.exp(), 64, replacement=True, generator=generator).tolist()
        engine.update(
            [
                BatchRow(
                    f"{update}-{i}",
                    "toy",
                    prompt,
                    (token,),
                    (table[token].item(),),
                    float(token == right),
                    1.0,
                    1.0,
                    update,
                    "graded",
                    "length",
                )
                for i, token in enumerate(drawn)
            ]
        )
    assert share > 0.9
