"""A batch as N x R arrays (learner.md 2): the small numbers per token, as opposed to the packs the network reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrl_core.config import RunConfig
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.ppo.advantages import gae, token_rewards, whiten


@dataclass(frozen=True)
class TensorBatch:
    """N responses, R = the longest one. The mask is built from lengths; an end-of-sequence token counts."""

    response_len: Tensor  # [N] int64
    response_mask: Tensor  # [N, R] fp32 0/1
    rollout_log_probs: Tensor  # [N, R] fp32
    reward: Tensor  # [N] fp64
    duration_weight: Tensor  # [N] fp64

    @classmethod
    def of(cls, rows: Sequence[BatchRow]) -> TensorBatch:
        lengths = torch.tensor([len(row.response_ids) for row in rows])
        width = int(lengths.max())
        rollout = torch.zeros(len(rows), width)
        for i, row in enumerate(rows):
            rollout[i, : len(row.response_ids)] = torch.tensor(row.rollout_log_probs)
        return cls(
            response_len=lengths,
            response_mask=(torch.arange(width)[None] < lengths[:, None]).float(),
            rollout_log_probs=rollout,
            reward=torch.tensor([row.reward for row in rows], dtype=torch.float64),
            duration_weight=torch.tensor([row.duration_weight for row in rows], dtype=torch.float64),
        )


@dataclass(frozen=True)
class Targets:
    """What the losses need, fixed for the whole update. All [N, R] fp32, 0 where the mask is 0."""

    old_log_probs: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor  # whitened, then times the duration weight
    std_before_whitening: float
    reference_kl: float  # mean k1 between the sampler and the reference


def make_targets(batch: TensorBatch, ref_log_probs: Tensor, values: Tensor, config: RunConfig) -> Targets:
    """KL into the reward, GAE, whitening, duration weight, in this order (learner.md 3)."""
    ppo, mask = config.ppo, batch.response_mask
    on = mask.bool()
    old_log_probs = batch.rollout_log_probs
    rewards = token_rewards(batch.reward, batch.response_len, old_log_probs, ref_log_probs, mask, ppo.kl_coef)
    advantages, returns = gae(rewards, values, mask, ppo.gamma, ppo.gae_lambda)
    raw = advantages[on].double()
    weighted = whiten(advantages, mask) * batch.duration_weight[:, None].float()
    difference = (old_log_probs - ref_log_probs)[on]
    return Targets(
        old_log_probs=old_log_probs,
        values=values,
        returns=returns,
        advantages=weighted,
        std_before_whitening=raw.std(unbiased=False).item() if raw.numel() else 0.0,
        reference_kl=difference.double().mean().item() if raw.numel() else 0.0,
    )
