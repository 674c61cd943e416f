"""From one reward per response to one advantage per token."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mlrl_core.ppo.kl import k1

SPREAD_FLOOR = 1e-6  # rewards closer together than this carry no signal, only the noise of the KL term


def token_rewards(
    reward: Tensor, response_len: Tensor, old_log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor, kl_coef: float
) -> Tensor:
    """Rewards per token [N, R]: minus ``kl_coef`` times k1 everywhere, plus ``reward`` [N] on the last sampled token.

    The last token is index ``response_len - 1`` (never the first pad after it); a row without tokens carries none.
    """
    on = mask.bool()
    log_ratio = torch.where(on, old_log_probs, 0) - torch.where(on, ref_log_probs, 0)
    rewards = -kl_coef * k1(log_ratio)
    rows = torch.nonzero(response_len > 0).squeeze(1)
    rewards[rows, response_len[rows] - 1] += reward[rows].to(rewards.dtype)
    return rewards


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float, bootstrap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over the tokens with mask 1, others skipped as if they weren't there.

    ``values`` [N, R] is the value before each token; ``bootstrap`` [N] the value after the last one, 0 by default:
    every outcome ends the episode. Returns unwhitened advantages and returns (advantages + values), both [N, R] in the
    dtype of ``values`` and 0 where the mask is 0. Computed in float64.
    """
    on = mask.bool()
    order = torch.argsort(~on, dim=1, stable=True)  # sampled tokens to the front, in their order
    real = torch.gather(on, 1, order)
    r = torch.where(on, rewards, 0).double().gather(1, order)
    v = torch.where(on, values, 0).double().gather(1, order)
    lengths = on.sum(1)
    advantage = torch.zeros_like(v)
    running = v.new_zeros(v.shape[0])
    after = v.new_zeros(v.shape[0]) if bootstrap is None else bootstrap.double()
    for t in reversed(range(int(lengths.max()) if lengths.numel() else 0)):
        delta = r[:, t] + gamma * after - v[:, t]
        running = torch.where(real[:, t], delta + gamma * lam * running, running)
        after = torch.where(real[:, t], v[:, t], after)
        advantage[:, t] = running
    advantage = torch.where(real, advantage, 0)
    back = torch.zeros_like(advantage).scatter(1, order, advantage)
    returns = torch.where(on, back + values.double(), 0)
    return back.to(values.dtype), returns.to(values.dtype)


def episode_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, following: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """``gae`` where an episode may be several rows: each is followed by the tokens of those after it, so that what a
    later action earns is part of the return of an earlier one, through the value of the later one's prompt where
    ``lam`` is below 1.

    ``following`` [N] int64 is the row in which a row's episode goes on, -1 for none. Shapes as in ``gae``.
    """
    width = mask.shape[1]
    steps = _along(following)
    # Selected, not multiplied: what a mask hides may be NaN.
    chained_rewards, chained_values, chained_mask = (
        torch.cat([torch.where(row[:, None] >= 0, x[row.clamp(min=0)], 0) for row in steps], 1)
        for x in (rewards, values, mask)
    )
    advantages, returns = gae(chained_rewards, chained_values, chained_mask, gamma, lam)
    return advantages[:, :width], returns[:, :width]


def episode_sums(x: Tensor, following: Tensor) -> Tensor:
    """Of each row [N], ``x`` [N] of itself and of all that follows in its episode, added up."""
    return torch.stack([torch.where(row >= 0, x[row.clamp(min=0)], 0) for row in _along(following)]).sum(0)


def _along(following: Tensor) -> list[Tensor]:
    """The rows [N] that rows have come to after 0, 1, 2 ... actions, -1 beyond the end of their episodes."""
    steps = [torch.arange(len(following))]
    while (after := torch.where(steps[-1] >= 0, following[steps[-1]], -1)).ge(0).any():
        if len(steps) > len(following):
            raise ValueError("an episode that leads back into itself")
        steps.append(after)
    return steps


def centred(x: Tensor, mask: Tensor, groups: Tensor) -> Tensor:
    """``x`` [N, R] less the mean over the tokens with mask 1 of each group [N]; 0 where the mask is 0."""
    on = mask.bool()
    out = torch.zeros_like(x)
    for group in groups.unique():
        members = on & (groups == group)[:, None]
        if members.any():
            out[members] = (x[members].double() - x[members].double().mean()).to(x.dtype)
    return out


def group_advantages(
    returns: Tensor, reward: Tensor, groups: Tensor, kind: Literal["group", "rloo"]
) -> tuple[Tensor, Tensor]:
    """Advantage of each response against the others of its group, without a critic, and whether it counts; both [N].

    ``returns`` [N] are the rewards after the KL term, ``reward`` [N] before it (both of the rest of the episode),
    ``groups`` [N] ids of those that are compared: responses to equal prompts.
    ``group`` (GRPO): ``(R - mean) / sqrt(biased variance + 1e-8)``; ``rloo``: R minus the mean of the others. A group
    of one, or whose rewards spread at most 1e-6, says nothing: its rows get 0 and leave the loss and its denominator.
    """
    advantages = torch.zeros_like(returns)
    counts = torch.zeros_like(returns, dtype=torch.bool)
    for group in groups.unique():
        members = torch.nonzero(groups == group).squeeze(1)
        n, own = members.numel(), returns[members]
        if n < 2 or reward[members].max() - reward[members].min() <= SPREAD_FLOOR:
            continue
        centred = own - own.mean()
        scale = torch.rsqrt(own.var(unbiased=False) + 1e-8) if kind == "group" else n / (n - 1)
        advantages[members] = centred * scale
        counts[members] = True
    return advantages, counts


def whiten(x: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """``x`` with mean 0 and variance 1 over the tokens with mask 1; 0 where the mask is 0.

    Statistics are float64 with the biased variance; fewer than two tokens stay as they are. ``x`` must be the whole
    batch: statistics of a slice would differ from rank to rank.
    """
    on = mask.bool()
    kept = x[on].double()
    if kept.numel() < 2:
        return torch.where(on, x, 0)
    scale = torch.rsqrt(kept.var(unbiased=False) + eps)
    return torch.where(on, ((x.double() - kept.mean()) * scale).to(x.dtype), 0)
