"""A batch as N x R arrays (learner.md 2): the small numbers per token, as opposed to the packs the network reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mlrl_core.config import RunConfig
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.ppo.advantages import (
    SPREAD_FLOOR,
    centred,
    episode_gae,
    episode_sums,
    group_advantages,
    token_rewards,
    whiten,
)
from mlrl_core.ppo.losses import truncated_importance


@dataclass(frozen=True)
class TensorBatch:
    """N responses, R = the longest one. The mask is built from lengths; an end-of-sequence token counts."""

    response_len: Tensor  # [N] int64
    response_mask: Tensor  # [N, R] fp32 0/1
    rollout_log_probs: Tensor  # [N, R] fp32
    reward: Tensor  # [N] fp64, each row's own
    duration_weight: Tensor  # [N] fp64
    group: Tensor  # [N] int64, equal for those that are compared without a critic
    competition: Tensor  # [N] int64, equal for the same competition
    follows: Tensor  # [N] int64, 1 where the prompt shows an earlier solution, 0 where it shows none
    following: Tensor  # [N] int64, the row in which a row's episode goes on, -1 for none

    @classmethod
    def of(cls, rows: Sequence[BatchRow]) -> TensorBatch:
        lengths = torch.tensor([len(row.response_ids) for row in rows])
        width = int(lengths.max())
        rollout = torch.zeros(len(rows), width)
        for i, row in enumerate(rows):
            rollout[i, : len(row.response_ids)] = torch.tensor(row.rollout_log_probs)
        place = {row.experience_id: i for i, row in enumerate(rows)}
        return cls(
            response_len=lengths,
            response_mask=(torch.arange(width)[None] < lengths[:, None]).float(),
            rollout_log_probs=rollout,
            reward=torch.tensor([row.reward for row in rows], dtype=torch.float64),
            duration_weight=torch.tensor([row.duration_weight for row in rows], dtype=torch.float64),
            group=_numbered(_compared(rows)),
            competition=_numbered([row.competition_id for row in rows]),
            follows=torch.tensor([int(row.asked != "solve") for row in rows]),
            # In a part of a batch the next row may be elsewhere.
            following=torch.tensor([place.get(row.next_id, -1) if row.next_id else -1 for row in rows]),
        )

    @cached_property
    def episode_reward(self) -> Tensor:
        """[N] fp64: a row's own reward and those of all that follows in its episode."""
        return episode_sums(self.reward, self.following)

    @property
    def unheard(self) -> Tensor:
        """[N] fp64: the reward of the row that follows where that one has no token to carry it."""
        after = self.following.clamp(min=0)
        return torch.where((self.following >= 0) & (self.response_len[after] == 0), self.reward[after], 0)


def _numbered(keys: Sequence[Hashable]) -> Tensor:
    """[N] int64, equal for equal keys, in the order of their first appearance."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([numbers[key] for key in keys])


def _compared(rows: Sequence[BatchRow]) -> list[Hashable]:
    """What responses without a critic are compared by: the same prompt.

    One that was asked once (most improve prompts are) has no other response; its own is compared with those of the
    competition that were asked the same kind of thing and are alone too: much hangs on whether there is a failure to
    mend. A baseline may be anything that doesn't follow from the response itself.
    """
    asked = Counter(row.prompt_ids for row in rows)
    return [row.prompt_ids if asked[row.prompt_ids] > 1 else (row.competition_id, row.asked) for row in rows]


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
    ``values`` are zeros. Rows of one episode are one sequence: what a later one earns is part of what an earlier one
    returns.
    """
    ppo, mask = config.ppo, batch.response_mask
    on = mask.bool()
    kl_coef = ppo.kl_coef if ppo.kl_place == "reward" else 0.0
    heard = batch.reward + batch.unheard
    rewards = token_rewards(heard, batch.response_len, old_log_probs, ref_log_probs, mask, kl_coef)
    policy_mask = mask
    if ppo.advantage == "gae":
        raw, returns = episode_gae(rewards, values, mask, batch.following, ppo.gamma, ppo.gae_lambda)
        if config.improve.episode == "two_step":
            # A return over two rewards has another level than one over one: whitening must not take that for news.
            raw = centred(raw, mask, 2 * batch.competition + batch.follows)
        advantages = _whiten_each(raw, mask, batch)
    else:
        in_all = episode_sums(rewards.double().sum(1), batch.following)
        per_row, counts = group_advantages(in_all, batch.episode_reward, batch.group, ppo.advantage)
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
