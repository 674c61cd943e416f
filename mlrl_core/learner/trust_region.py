"""How far one update may move the policy, and how far it did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.network import part
from mlrl_core.learner.packing import Pack
from mlrl_core.learner.tensors import TensorBatch
from mlrl_core.ppo.kl import k3

if TYPE_CHECKING:
    from mlrl_core.learner.engine import Engine

MAX_HALVINGS = 8


def start_log_probs(
    engine: Engine, rows: Sequence[BatchRow], packs: Sequence[Pack], batch: TensorBatch, old_log_probs: Tensor
) -> Tensor:
    """What ``max_kl`` is measured from: this version's log-probabilities [N, R], as the learner computes them.

    The sampler's are as good where it was this version in the same numerics. Rows of older versions would count how far
    the policy has come since; a sampler's rounding grows with the adapter, and beyond ``max_kl`` it forbids all steps.
    """
    config = engine.config
    stale = any(row.policy_version != engine.version for row in rows)
    if not config.ppo.max_kl or config.ppo.importance_correction != "none":
        return old_log_probs
    return engine.compute_log_probs(packs, batch) if stale or config.is_rounded else old_log_probs


@torch.no_grad()
def keep_close(
    engine: Engine, before: dict[str, Tensor], packs: Sequence[Pack], batch: TensorBatch, start_log_probs: Tensor
) -> float:
    """Halve the policy's way from ``before`` until its KL (k3, token mean, in nats) from ``start_log_probs``
    [N, R] is at most ``ppo.max_kl``; how often.

    The backtracking line search of trust region methods (Schulman et al. 2015, appendix C). A few hundred tokens
    that moved together can cost a whole wave: the clip bounds each token of the batch, not what was not sampled.
    """
    if not engine.config.ppo.max_kl:
        return 0.0
    on = batch.response_mask.bool()
    for halvings in range(MAX_HALVINGS):
        log_ratio = (engine.compute_log_probs(packs, batch) - start_log_probs)[on].double()
        if k3(-log_ratio).mean().item() <= engine.config.ppo.max_kl:
            return float(halvings)
        for name, parameter in engine.network.trainable("policy").items():
            part(parameter).lerp_(before[name], 0.5)
    return float(MAX_HALVINGS)


def distance(engine: Engine, before: dict[str, Tensor]) -> float:
    """Euclidean length of the policy's way from ``before``, over all its adapter tensors."""
    now = engine.network.trainable("policy")
    squares = [(part(now[name].detach()).double() - old.double()).square().sum().cpu() for name, old in before.items()]
    return math.sqrt(engine.ranks.sum(torch.stack(squares)).sum().item())
