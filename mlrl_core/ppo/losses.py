"""Per-token losses and their one aggregation: a mean over the tokens of the whole optimiser step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mlrl_core.ppo.kl import LOG_RATIO_LIMIT

IMPORTANCE_CAP = 2.0


class PolicyLoss(NamedTuple):
    """All of the shape of the log-probabilities; ``clipped`` and ``clipped_lower`` are bool."""

    loss: Tensor
    log_ratio: Tensor
    clipped: Tensor  # the clipped branch is taken
    clipped_lower: Tensor  # the dual clip is taken


class ValueLoss(NamedTuple):
    loss: Tensor
    clipped: Tensor


def masked_log_ratio(log_probs: Tensor, old_log_probs: Tensor, mask: Tensor) -> Tensor:
    """``log_probs - old_log_probs`` clamped to +-20, 0 where the mask is 0.

    Masked slots are selected away before the subtraction: multiplying an infinite exponential by 0 afterwards leaves a
    finite loss and a NaN gradient.
    """
    on = mask.bool()
    log_ratio = torch.where(on, log_probs, 0) - torch.where(on, old_log_probs, 0)
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def truncated_importance(old_log_probs: Tensor, rollout_log_probs: Tensor, mask: Tensor) -> Tensor:
    """Per token, detached: ``pi_old / pi_rollout`` cut at IMPORTANCE_CAP, 0 where the mask is 0.

    It multiplies the loss when the sampler's numbers differ from the learner's; the denominator is counted without it.
    """
    ratio = masked_log_ratio(old_log_probs, rollout_log_probs, mask).exp().clamp(max=IMPORTANCE_CAP)
    return torch.where(mask.bool(), ratio, 0).detach()


def policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, clip: float, dual_clip: float
) -> PolicyLoss:
    """Clipped surrogate with dual clip, per token: ``max(-rA, -clip(r, 1 +- clip) A)``, at most ``-dual_clip * A``
    where A < 0. The duration weight is already in ``advantages`` (positive, so it commutes with both clips)."""
    log_ratio = masked_log_ratio(log_probs, old_log_probs, mask)
    ratio = log_ratio.exp()
    plain = -ratio * advantages
    bounded = -ratio.clamp(1 - clip, 1 + clip) * advantages
    clipped = bounded > plain
    loss = torch.maximum(plain, bounded)
    limit = -dual_clip * advantages
    clipped_lower = (advantages < 0) & (limit < loss)
    loss = torch.where(clipped_lower, limit, loss)
    return PolicyLoss(loss, log_ratio, clipped, clipped_lower)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, value_clip: float) -> ValueLoss:
    """``0.5 max((v - R)^2, (v_old + clip(v - v_old, +-value_clip) - R)^2)`` per token."""
    plain = (values - returns).square()
    near = (old_values + (values - old_values).clamp(-value_clip, value_clip) - returns).square()
    return ValueLoss(0.5 * torch.maximum(plain, near), near > plain)


def token_mean(x: Tensor, mask: Tensor, tokens: float) -> Tensor:
    """Sum of ``x`` over the tokens with mask 1, divided by ``tokens``: the count of the whole optimiser step (all
    ranks, all micro-batches), so that no split of the batch changes the gradient."""
    return torch.where(mask.bool(), x, 0).sum() / tokens
