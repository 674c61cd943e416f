"""Gradients of one optimiser step: forward and backward over its micro-batches, policy and critic in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlrl_core.learner.metrics import Sums
from mlrl_core.learner.network import TokenScores
from mlrl_core.learner.packing import Pack
from mlrl_core.learner.tensors import Targets
from mlrl_core.ppo.kl import k2
from mlrl_core.ppo.losses import masked_log_ratio, policy_loss, token_mean, value_loss

if TYPE_CHECKING:
    from mlrl_core.learner.engine import Engine

ACTOR_SUMS = ("pg_loss", "pg_clipfrac", "pg_clipfrac_lower", "ppo_kl", "entropy")
CRITIC_SUMS = ("vf_loss", "vf_clipfrac")


@dataclass(frozen=True)
class Step:
    """One optimiser step. ``packs`` are this rank's micro-batches. The two counts are of the response tokens of all
    ranks that a loss is over: its denominator, so that no split changes the gradient."""

    packs: Sequence[Pack]
    policy_tokens: int
    critic_tokens: int
    targets: Targets
    start_log_probs: Tensor  # [N, R], of the policy before the update
    sums: Sums


def policy_gradients(engine: Engine, step: Step, train: bool, mismatch: Tensor | None) -> float:
    """Add the policy's gradients of ``step`` to its parameters (only measure when not ``train``).

    ``mismatch`` [2, N, R] receives the log-probabilities and a 1 where they are known. Returns the sum over this rank's
    response tokens of the KL (k3) from where the update began to where the policy is now; 0 where nothing bounds it.
    """
    ppo = engine.config.ppo
    divergence = 0.0
    with engine.network.acting("policy"), torch.set_grad_enabled(train):
        for pack in step.packs:
            scores: TokenScores = engine.forward(pack, "policy")
            if pack.blank:
                _backward(engine, scores.log_probs.sum() * 0, train)
                continue
            old, advantages = _pick(step.targets.old_log_probs, pack), _pick(step.targets.advantages, pack)
            mask = _pick(step.targets.policy_mask, pack)
            result = policy_loss(scores.log_probs, old, advantages, mask, ppo.clip, ppo.dual_clip)
            loss = token_mean(result.loss, mask, step.policy_tokens)
            if ppo.step_kl_coef > 0:
                # Zero at the first step, then it holds tokens that no advantage is about where they were.
                loss = loss + ppo.step_kl_coef * token_mean(k2(result.log_ratio), mask, step.policy_tokens)
            if ppo.kl_coef > 0 and ppo.kl_place == "loss":
                ref = _pick(step.targets.ref_log_probs, pack)
                drift = masked_log_ratio(scores.log_probs, ref, mask)
                loss = loss + ppo.kl_coef * token_mean(k2(drift), mask, step.policy_tokens)
            if ppo.entropy_coef > 0:
                loss = loss - ppo.entropy_coef * token_mean(scores.entropy, mask, step.policy_tokens)
            _backward(engine, loss, train)
            if mismatch is not None:
                mismatch[0].view(-1)[pack.slots] = scores.log_probs.detach().cpu()
                mismatch[1].view(-1)[pack.slots] = 1
            log_ratio = result.log_ratio.detach()
            step.sums.add("pg_loss", result.loss.detach())
            step.sums.add("pg_clipfrac", result.clipped)
            step.sums.add("pg_clipfrac_lower", result.clipped_lower)
            # k3 under the old policy; the plain difference of log-probabilities is mostly noise.
            step.sums.add("ppo_kl", torch.expm1(log_ratio) - log_ratio)
            if ppo.max_kl > 0:
                way = masked_log_ratio(scores.log_probs.detach(), _pick(step.start_log_probs, pack), mask)
                divergence += (torch.expm1(way) - way).double().sum().item()
            step.sums.add("entropy", scores.entropy.detach())
    return divergence


def critic_gradients(engine: Engine, step: Step) -> None:
    """Add the critic's gradients of ``step`` to its parameters."""
    with engine.network.acting("critic"):
        for pack in step.packs:
            values = engine.forward(pack, "critic")
            if pack.blank:
                _backward(engine, values.sum() * 0, True)
                continue
            old, returns = _pick(step.targets.values, pack), _pick(step.targets.returns, pack)
            result = value_loss(values, old, returns, engine.config.ppo.value_clip)
            _backward(engine, token_mean(result.loss, torch.ones_like(old), step.critic_tokens), True)
            step.sums.add("vf_loss", result.loss.detach())
            step.sums.add("vf_clipfrac", result.clipped)


def _backward(engine: Engine, loss: Tensor, train: bool) -> None:
    if train:
        (loss * engine.ranks.world).backward()  # FSDP2 averages over the ranks, the loss is a sum over them


def _pick(array: Tensor, pack: Pack) -> Tensor:
    """The [M] elements of an [N, R] array that belong to the pack's response tokens, where the pack is."""
    return array.reshape(-1)[pack.slots].to(pack.targets.device)
