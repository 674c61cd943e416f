"""The optimiser steps of one update: epochs of minibatches over the same rows, policy and critic side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.metrics import Sums, mismatch_metrics
from mlrl_core.learner.network import Trained, whole
from mlrl_core.learner.passes import ACTOR_SUMS, CRITIC_SUMS, Step, critic_gradients, policy_gradients
from mlrl_core.learner.tensors import Targets, TensorBatch
from mlrl_core.ppo.advantages import SPREAD_FLOOR

if TYPE_CHECKING:
    from mlrl_core.learner.engine import Engine

MAX_SKIPPED_IN_A_ROW = 3


def train(
    engine: Engine, rows: Sequence[BatchRow], batch: TensorBatch, targets: Targets, start_log_probs: Tensor
) -> dict[str, float]:
    """Every optimiser step of one update on ``rows``; start_log_probs [N, R] are the policy's before it.

    Returns the metrics of actor, critic and mismatch. Raises MlrlError when gradients stay non-finite.
    """
    ppo = engine.config.ppo
    spread = (batch.reward.max() - batch.reward.min()).item()
    train_policy = ppo.learning_rate > 0 and spread >= SPREAD_FLOOR and engine.version >= ppo.critic_warmup_updates
    sums = Sums([*ACTOR_SUMS, *CRITIC_SUMS])
    # The learner's log-probabilities before any step, and where they are known: everywhere, or in the first step.
    recomputed = ppo.importance_correction != "none"
    mismatch = torch.zeros(2, *batch.response_mask.shape)
    if recomputed:
        mismatch = torch.stack([targets.old_log_probs, batch.response_mask]) / engine.ranks.world
    norms: dict[Trained, list[float]] = {"policy": [], "critic": []}
    steps = skipped = in_a_row = 0
    far = False  # beyond max_kl of where this update began
    critic_epochs = (ppo.critic_epochs or ppo.epochs) if ppo.advantage == "gae" else 0
    for epoch in range(max(ppo.epochs, critic_epochs)):
        for chosen in _minibatches(engine, len(rows), epoch):
            critic_tokens = int(batch.response_len[chosen].sum())
            policy_tokens = int(targets.policy_mask[chosen].sum())
            if not critic_tokens:
                continue
            dealt = engine.deal(rows, chosen, batch)
            step = Step(dealt, policy_tokens, critic_tokens, targets, start_log_probs, sums)
            trained: list[Trained] = []
            if epoch < ppo.epochs and not far:
                trained += ["policy"] if train_policy and policy_tokens else []
                kl = policy_gradients(engine, step, bool(trained), None if steps or recomputed else mismatch)
                # From beyond the bound no gradient is worth a step, nor a place in Adam's memory.
                if trained and ppo.max_kl and _mean_over_ranks(engine, kl, policy_tokens) > ppo.max_kl:
                    far = True
                    trained.remove("policy")
            if epoch < critic_epochs:
                critic_gradients(engine, step)
                trained.append("critic")
            steps += 1
            found = {role: _clip(engine, role) for role in trained}
            if all(math.isfinite(norm) for norm in found.values()):
                in_a_row = 0
                for role, norm in found.items():
                    norms[role].append(norm)
                    engine.optimizers[role].step()
            else:
                skipped += 1
                in_a_row += 1
            for optimizer in engine.optimizers.values():
                optimizer.zero_grad(set_to_none=True)
            if in_a_row >= MAX_SKIPPED_IN_A_ROW:
                raise MlrlError(
                    f"gradients were not finite in {in_a_row} steps in a row at version {engine.version}: lower "
                    "ppo.learning_rate and ppo.critic_learning_rate, or restart from an older version"
                )
    engine.skipped_steps += skipped
    means = sums.means(engine.ranks)
    known, where = engine.ranks.sum(mismatch)
    return {
        **{f"actor/{key}": means[key] for key in ACTOR_SUMS},
        **{f"critic/{key}": means[key] for key in CRITIC_SUMS},
        "actor/grad_norm": _mean(norms["policy"]),
        "actor/trained": float(train_policy),
        "critic/grad_norm": _mean(norms["critic"]),
        "learner/steps": float(steps - skipped),
        "learner/skipped_steps": float(skipped),
        **mismatch_metrics((known - batch.rollout_log_probs)[where.bool()]),
    }


def _minibatches(engine: Engine, n: int, epoch: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(engine.seed_for(f"epoch {epoch}"))
    order = torch.randperm(n, generator=generator)
    parts = torch.tensor_split(order, min(engine.config.ppo.minibatches, n))
    return [sorted(chosen.tolist()) for chosen in parts]


def _mean_over_ranks(engine: Engine, total: float, count: int) -> float:
    return engine.ranks.sum(torch.tensor([total], dtype=torch.double)).item() / count


def _clip(engine: Engine, role: Trained) -> float:
    parameters = list(engine.network.trainable(role).values())
    return whole(torch.nn.utils.clip_grad_norm_(parameters, engine.config.ppo.max_grad_norm)).item()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
