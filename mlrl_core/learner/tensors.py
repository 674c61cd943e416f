"""A batch as N x R arrays (learner.md 2): the small numbers per token, as opposed to the packs the network reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrl_core.config import RunConfig
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.ppo.advantages import SPREAD_FLOOR, gae, group_advantages, token_rewards, whiten
from mlrl_core.ppo.losses import truncated_importance


@dataclass(frozen=True)
class TensorBatch:
    """N responses, R = the longest one. The mask is built from lengths; an end-of-sequence token counts."""

    response_len: Tensor  # [N] int64
    response_mask: Tensor  # [N, R] fp32 0/1
    rollout_log_probs: Tensor  # [N, R] fp32
    reward: Tensor  # [N] fp64
    duration_weight: Tensor  # [N] fp64
    group: Tensor  # [N] int64, equal for equal prompts
    competition: Tensor  # [N] int64, equal for the same competition

    @classmethod
    def of(cls, rows: Sequence[BatchRow]) -> TensorBatch:
        lengths = torch.tensor([len(row.response_ids) for row in rows])
        width = int(lengths.max())
        rollout = torch.zeros(len(rows), width)
        for i, row in enumerate(rows):
            rollout[i, : len(row.response_ids)] = torch.tensor(row.rollout_log_probs)
        prompts = {prompt: number for number, prompt in enumerate(dict.fromkeys(row.prompt_ids for row in rows))}
        places = {name: number for number, name in enumerate(dict.fromkeys(row.competition_id for row in rows))}
        return cls(
            response_len=lengths,
            response_mask=(torch.arange(width)[None] < lengths[:, None]).float(),
            rollout_log_probs=rollout,
            reward=torch.tensor([row.reward for row in rows], dtype=torch.float64),
            duration_weight=torch.tensor([row.duration_weight for row in rows], dtype=torch.float64),
            group=torch.tensor([prompts[row.prompt_ids] for row in rows]),
            competition=torch.tensor([places[row.competition_id] for row in rows]),
        )


@dataclass(frozen=True)
class Targets:
    """What the losses need, fixed for the whole update. All [N, R] fp32, 0 where the mask is 0."""

    old_log_probs: Tensor
    ref_log_probs: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor  # whitened, times the duration weight, times the importance of the sampler's tokens
    policy_mask: Tensor  # tokens of the policy's loss: all of them, or those of groups that say something
    std_before_whitening: float
    reference_kl: float  # mean k1 between the old policy and the reference


def make_targets(
    batch: TensorBatch, ref_log_probs: Tensor, old_log_probs: Tensor, values: Tensor, config: RunConfig
) -> Targets:
    """KL into the reward, GAE or groups, whitening, duration weight, importance, in this order (learner.md 3).

    ``old_log_probs`` are the sampler's own, or the learner's where the importance is corrected. Without a critic
    ``values`` are zeros.
    """
    ppo, mask = config.ppo, batch.response_mask
    on = mask.bool()
    kl_coef = ppo.kl_coef if ppo.kl_place == "reward" else 0.0
    rewards = token_rewards(batch.reward, batch.response_len, old_log_probs, ref_log_probs, mask, kl_coef)
    policy_mask = mask
    if ppo.advantage == "gae":
        raw, returns = gae(rewards, values, mask, ppo.gamma, ppo.gae_lambda)
        advantages = _whiten_each(raw, mask, batch)
    else:
        per_row, counts = group_advantages(rewards.double().sum(1), batch.reward, batch.group, ppo.advantage)
        raw = per_row[:, None].float() * mask
        advantages, returns = raw, torch.zeros_like(values)
        policy_mask = mask * counts[:, None]
    advantages = advantages * batch.duration_weight[:, None].float()
    if ppo.importance_correction == "tis_token":
        advantages = advantages * truncated_importance(old_log_probs, batch.rollout_log_probs, mask)
    difference = (old_log_probs - ref_log_probs)[on]
    return Targets(
        old_log_probs=old_log_probs,
        ref_log_probs=ref_log_probs,
        values=values,
        returns=returns,
        advantages=advantages,
        policy_mask=policy_mask,
        std_before_whitening=raw[on].double().std(unbiased=False).item() if difference.numel() else 0.0,
        reference_kl=difference.double().mean().item() if difference.numel() else 0.0,
    )


def _whiten_each(raw: Tensor, mask: Tensor, batch: TensorBatch) -> Tensor:
    """Whiten [N, R] within each competition: rewards of different ones have different scales.

    One whose rewards are all the same says nothing, and whitening would only blow up the KL term: it gets 0, unless it
    is alone in the batch, where the engine decides.
    """
    competitions = batch.competition.unique()
    if len(competitions) == 1:
        return whiten(raw, mask)
    out = torch.zeros_like(raw)
    for competition in competitions:
        members = torch.nonzero(batch.competition == competition).squeeze(1)
        reward = batch.reward[members]
        if reward.max() - reward.min() >= SPREAD_FLOOR:
            out[members] = whiten(raw[members], mask[members])
    return out
