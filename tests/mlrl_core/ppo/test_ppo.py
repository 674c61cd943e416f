"""The hand-computed values and gradient properties of learner.md sections 3 and 14."""

from __future__ import annotations

import math

import pytest
import torch

from mlrl_core.ppo.advantages import (
    centred,
    episode_gae,
    episode_sums,
    gae,
    group_advantages,
    token_rewards,
    whiten,
)
from mlrl_core.ppo.kl import k1, k2, k3
from mlrl_core.ppo.log_probs import token_log_probs
from mlrl_core.ppo.losses import masked_log_ratio, policy_loss, token_mean, truncated_importance, value_loss


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: torch.Tensor, *expected: float, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(actual.double().flatten(), t(*expected), rtol=0, atol=tolerance)


VALUES = t(0.1, 0.2, 0.3, 0.4)[None]
LAST = t(0, 0, 0, 1)[None]
ALL = torch.ones(1, 4)


@pytest.mark.parametrize(
    ("gamma", "lam", "expected"),
    [
        (1, 1, (0.9, 0.8, 0.7, 0.6)),
        (1, 0.95, (0.799675, 0.7365, 0.67, 0.6)),
        (0.9, 0.8, (0.38545344, 0.424240, 0.492, 0.6)),
    ],
)
def test_gae_by_hand(gamma: float, lam: float, expected: tuple[float, ...]) -> None:
    advantages, returns = gae(LAST, VALUES, ALL, gamma, lam)
    close(advantages, *expected)
    close(returns - VALUES, *expected)


def test_gae_bootstrap_is_explicit() -> None:
    advantages, _ = gae(LAST * 0, VALUES, ALL, 1, 1, bootstrap=t(0.5))
    close(advantages, 0.4, 0.3, 0.2, 0.1)


@pytest.mark.parametrize("lam", [1.0, 0.7])
def test_gae_skips_masked_tokens(lam: float) -> None:
    mask = torch.tensor([[1, 0, 0, 1]])
    advantages, returns = gae(LAST, t(0.1, 9, 9, 0.4)[None], mask, 1, lam)
    short, _ = gae(t(0, 1)[None], t(0.1, 0.4)[None], torch.ones(1, 2), 1, lam)
    close(advantages, short[0, 0], 0, 0, short[0, 1])
    if lam == 1:
        close(advantages, 0.9, 0, 0, 0.6)
    assert returns[0, 1] == returns[0, 2] == 0


def test_gae_ignores_garbage_under_the_mask() -> None:
    mask = torch.tensor([[1, 1, 0, 0]])
    values = torch.tensor([[0.1, 0.2, math.nan, math.inf]])
    advantages, returns = gae(torch.tensor([[0.0, 1.0, math.nan, -math.inf]]), values, mask, 1, 1)
    close(advantages, 0.9, 0.8, 0, 0)
    close(returns, 1, 1, 0, 0)


def test_gae_of_an_all_masked_row_and_of_no_rows() -> None:
    advantages, returns = gae(LAST, VALUES, ALL * 0, 1, 1, bootstrap=t(3.0))
    close(advantages, 0, 0, 0, 0)
    close(returns, 0, 0, 0, 0)
    assert gae(torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(0, 4), 1, 1)[0].shape == (0, 4)


def test_whitening_by_hand() -> None:
    one = torch.ones(1, 1)
    close(whiten(t(3)[None], one), 3)
    close(whiten(t(1, 3)[None], torch.ones(1, 2)), -1, 1)
    close(whiten(t(2, 2)[None], torch.ones(1, 2)), 0, 0)
    assert whiten(torch.zeros(0, 0), torch.zeros(0, 0)).shape == (0, 0)


def test_whitening_counts_and_touches_sampled_tokens_only() -> None:
    close(whiten(t(1, 1e6, 3)[None], torch.tensor([[1, 0, 1]])), -1, 0, 1)
    close(whiten(t(5, 1e6)[None], torch.tensor([[1, 0]])), 5, 0)  # one token: unchanged, its pad stays 0


def test_whitening_of_equal_rewards_in_fp32_is_zero() -> None:
    x = torch.full((64, 200), -9.7, dtype=torch.float32)
    close(whiten(x, torch.ones_like(x)).abs().max(), 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1, 1, -1), (1.5, 1, -1.2), (0.5, 1, -0.5), (1.5, -1, 1.5), (0.5, -1, 0.8), (5, -1, 3.0)],
)
@pytest.mark.parametrize("weight", [1.0, 7.65])
def test_policy_loss_by_hand(ratio: float, advantage: float, expected: float, weight: float) -> None:
    result = policy_loss(t(math.log(ratio)), t(0), t(weight * advantage), torch.ones(1), 0.2, 3.0)
    close(result.loss, weight * expected)
    assert result.clipped.item() == ((ratio, advantage) in {(1.5, 1), (0.5, -1)})
    assert result.clipped_lower.item() == (ratio == 5)


def test_value_loss_by_hand() -> None:
    close(value_loss(t(1, 0.2, -1), t(0, 0, 0), t(2, 2, 2), 0.5).loss, 1.125, 1.62, 4.5)


def test_kl_by_hand() -> None:
    x = t(0.5, -0.5, 5, -5)
    close(k2(x), 0.125, 0.125, 12.5, 12.5)
    close(k3(x, limit=math.inf), 0.10653066, 0.14872127, 4.00673795, 142.41315910)
    close(k3(x), 0.10653066, 0.14872127, 4.00673795, 10)
    close(k1(t(119, -119)), 20, -20)


def test_reward_sits_on_the_last_sampled_token() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]])
    nan = math.nan
    old = torch.tensor([[-1.0, -2.0, nan], [-1.0, -1.0, -1.0], [nan, nan, nan]])
    ref = torch.tensor([[-1.5, -1.0, nan], [-1.0, -1.0, -1.0], [nan, nan, nan]])
    rewards = token_rewards(t(5, -10, 3), torch.tensor([2, 3, 0]), old, ref, mask, kl_coef=0.1)
    close(rewards, -0.05, 0.1 + 5, 0, 0, 0, -10, 0, 0, 0)


def test_masked_log_ratio_has_finite_and_zero_gradient() -> None:
    log_probs = torch.tensor([0.0, 119.0, math.inf], requires_grad=True)
    mask = torch.tensor([1, 0, 0])
    old = torch.tensor([0.0, 0.0, -math.inf])
    loss = policy_loss(log_probs, old, torch.tensor([1.0, -1.0, 1.0]), mask, 0.2, 3.0)
    token_mean(loss.loss, mask, 1).backward()
    assert log_probs.grad is not None
    close(log_probs.grad, -1, 0, 0)


def test_unmasked_extreme_ratio_is_clamped_and_finite() -> None:
    log_probs = torch.tensor([119.0], requires_grad=True)
    assert masked_log_ratio(log_probs, torch.zeros(1), torch.ones(1)).item() == 20
    policy_loss(log_probs, torch.zeros(1), torch.tensor([-1.0]), torch.ones(1), 0.2, 3.0).loss.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.item() == 0


@pytest.mark.parametrize(("ratio", "flat"), [(2.9, False), (3.1, True)])
def test_dual_clip_has_no_gradient_beyond_its_bound(ratio: float, flat: bool) -> None:
    log_probs = t(math.log(ratio)).requires_grad_()
    policy_loss(log_probs, t(0), t(-1), torch.ones(1), 0.2, 3.0).loss.sum().backward()
    assert log_probs.grad is not None
    close(log_probs.grad, 0 if flat else ratio)


def test_whiten_then_weight_keeps_all_signs() -> None:
    advantages = torch.tensor([[1.0], [0.2], [-0.3], [-0.5], [0.1], [-1.0], [0.4], [2.0]])
    weights = torch.tensor([0.05] * 7 + [7.65])[:, None]
    white = whiten(advantages, torch.ones_like(advantages))
    assert torch.equal(torch.sign(white * weights), torch.sign(white))


def test_token_mean_uses_the_global_count_and_drops_masked_garbage() -> None:
    x, mask = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([1, 0, 1])
    assert token_mean(x, mask, 8).item() == 0.5


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_match_plain_autograd(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5000, 8, generator=generator, dtype=torch.float64)  # several chunks
    weight = torch.randn(30, 8, generator=generator, dtype=torch.float64)
    ids = torch.randint(30, (5000,), generator=generator)
    up, up_entropy = torch.randn(2, 5000, generator=generator)

    plain = hidden.clone().requires_grad_()
    table = torch.log_softmax(plain @ weight.T / temperature, -1)
    expected, expected_entropy = table.gather(1, ids[:, None])[:, 0], -(table.exp() * table).sum(-1)
    (expected * up + expected_entropy * up_entropy).sum().backward()

    ours = hidden.clone().requires_grad_()
    log_probs, entropy = token_log_probs(ours, weight, ids, temperature, entropy_grad=True)
    assert log_probs.dtype == entropy.dtype == torch.float32
    (log_probs * up + entropy * up_entropy).sum().backward()
    torch.testing.assert_close(log_probs.double(), expected.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(entropy.double(), expected_entropy.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.grad, plain.grad, rtol=0, atol=1e-5)


def test_entropy_gradient_is_off_by_default_and_a_trainable_head_is_refused() -> None:
    hidden = torch.randn(3, 8, requires_grad=True)
    weight, ids = torch.randn(30, 8), torch.zeros(3, dtype=torch.long)
    log_probs, entropy = token_log_probs(hidden, weight, ids, 1.0)
    assert log_probs.requires_grad
    assert not entropy.requires_grad
    with pytest.raises(ValueError, match="frozen"):
        token_log_probs(hidden, weight.requires_grad_(), ids, 1.0)


GROUPS = torch.tensor([4, 7, 4, 7, 9, 4])
REWARDS = t(1, -10, 3, -10, 5, 2)


def test_group_advantages_by_hand() -> None:
    """Group 4 has 1, 3, 2; group 7 is constant; group 9 is alone."""
    advantages, counts = group_advantages(REWARDS, REWARDS, GROUPS, "group")
    close(advantages, -math.sqrt(1.5), 0, math.sqrt(1.5), 0, 0, 0)
    assert counts.tolist() == [True, False, True, False, False, True]
    close(group_advantages(REWARDS, REWARDS, GROUPS, "rloo")[0], 1 - 2.5, 0, 3 - 1.5, 0, 0, 0)


def test_a_constant_group_stays_silent_under_noise_of_the_kl() -> None:
    noise = t(0, 1e-4, 0, -1e-4, 0, 0)
    advantages, counts = group_advantages(REWARDS + noise, REWARDS, GROUPS, "group")
    assert advantages[1] == advantages[3] == 0
    assert not counts[1]


def test_truncated_importance_keeps_its_bound_on_extreme_input() -> None:
    old = torch.tensor([-1.0, 50.0, -300.0, math.nan], requires_grad=True)
    weights = truncated_importance(old, torch.tensor([-1.5, -50.0, 0.0, 0.0]), torch.tensor([1, 1, 1, 0]))
    close(weights, math.exp(0.5), 2, math.exp(-20), 0)
    assert not weights.requires_grad


# Row 0 goes on in row 2; row 1 is alone. Rewards sit on last tokens: 1, 5 and 4.
FOLLOWING = torch.tensor([2, -1, -1])
EPISODE_MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
EPISODE_VALUES = torch.tensor([[0.5, 2.0, math.nan], [3.0, math.nan, math.nan], [1.0, 2.0, 3.0]], dtype=torch.float64)
EPISODE_REWARDS = torch.tensor([[0, 1, math.nan], [5, math.nan, math.nan], [0, 0, 4]], dtype=torch.float64)


def test_an_episode_of_two_rows_by_hand() -> None:
    """With lambda 1 the first row returns 1 + 4 less its values; without it looks one token ahead, from its last token
    to the value at the second row's prompt."""
    first, alone, second = episode_gae(EPISODE_REWARDS, EPISODE_VALUES, EPISODE_MASK, FOLLOWING, 1, 1)[0]
    close(first, 5 - 0.5, 5 - 2, 0)
    close(alone, 2, 0, 0)
    close(second, 3, 2, 1)
    first, alone, second = episode_gae(EPISODE_REWARDS, EPISODE_VALUES, EPISODE_MASK, FOLLOWING, 1, 0)[0]
    close(first, 2 - 0.5, 1 + 1 - 2, 0)
    close(alone, 2, 0, 0)
    close(second, 1, 1, 1)


@pytest.mark.parametrize(("gamma", "lam"), [(1, 1), (1, 0.95), (0.9, 0.8)])
def test_an_episode_of_two_rows_is_one_sequence(gamma: float, lam: float) -> None:
    advantages, returns = episode_gae(EPISODE_REWARDS, EPISODE_VALUES, EPISODE_MASK, FOLLOWING, gamma, lam)
    rewards, values = t(0, 1, 0, 0, 4)[None], t(0.5, 2, 1, 2, 3)[None]
    whole, whole_returns = gae(rewards, values, torch.ones(1, 5), gamma, lam)
    close(torch.cat([advantages[0, :2], advantages[2]]), *whole[0].tolist(), tolerance=1e-12)
    close(torch.cat([returns[0, :2], returns[2]]), *whole_returns[0].tolist(), tolerance=1e-12)


def test_without_episodes_nothing_changes() -> None:
    alone = torch.full((3,), -1)
    for mine, plain in zip(
        episode_gae(EPISODE_REWARDS, EPISODE_VALUES, EPISODE_MASK, alone, 0.9, 0.8),
        gae(EPISODE_REWARDS, EPISODE_VALUES, EPISODE_MASK, 0.9, 0.8),
        strict=True,
    ):
        assert torch.equal(mine, plain)


def test_what_an_episode_earns_from_each_action_on() -> None:
    close(episode_sums(t(1, 5, 4), FOLLOWING), 5, 5, 4)
    close(episode_sums(t(1, 2, 4), torch.tensor([1, 2, -1])), 7, 6, 4)
    with pytest.raises(ValueError, match="leads back"):
        episode_sums(t(1, 2), torch.tensor([1, 0]))


def test_centring_takes_each_group_by_itself() -> None:
    x = torch.tensor([[1.0, 3.0], [10.0, math.nan], [5.0, math.nan], [20.0, 30.0]])
    mask = torch.tensor([[1, 1], [1, 0], [0, 0], [1, 1]])
    close(centred(x, mask, torch.tensor([0, 1, 2, 1])), -1, 1, -10, 0, 0, 0, 0, 10)
