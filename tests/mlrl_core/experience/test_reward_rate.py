"""The estimate of reward per second: its posterior by hand, and that it follows the world."""

from __future__ import annotations

import json
import math
import random

import pytest

from mlrl_core.experience.reward_rate import RewardRate


def test_the_posterior_by_hand() -> None:
    """Two rows, (1, log 1 s) and (3, log e^2 s): mean (2, 1), scatter ((2, 2), (2, 2))."""
    belief = RewardRate(kappa=10.0, nu=30.0, mean=(0.0, 0.0), scatter=((1.0, 0.0), (0.0, 1.0)))
    after = belief.after([1, 3], [1, math.exp(2)], seed=0)
    assert after.kappa == pytest.approx(5)  # .3 * 10 + 2
    assert after.nu == pytest.approx(11)  # .3 * 30 + 2
    assert after.mean == pytest.approx((0.8, 0.4))  # 2 / 5 of the rows' mean
    # .3 of the old, the rows' own, and 3 * 2 / 5 of the outer product of (2, 1)
    assert after.scatter[0] == pytest.approx((0.3 + 2 + 4.8, 2 + 2.4))
    assert after.scatter[1] == pytest.approx((2 + 2.4, 0.3 + 2 + 1.2))
    assert RewardRate().after([1, 3], [1, 2], 0).nu == pytest.approx(6)  # max(.3 * 3, 4) + 2


def rows(rng: random.Random, n: int, reward: float, seconds: float) -> tuple[list[float], list[float]]:
    return [reward + 0.05 * rng.gauss(0, 1) for _ in range(n)], [
        seconds * math.exp(0.1 * rng.gauss(0, 1)) for _ in range(n)
    ]


def test_the_rate_is_optimistic_and_near_the_truth_and_follows_a_change() -> None:
    rng = random.Random(0)
    belief = RewardRate()
    for step in range(5):
        belief = belief.after(*rows(rng, 64, 1.0, 10.0), seed=step)
    assert 0.1 < belief.rho < 0.115
    for step in range(3):
        belief = belief.after(*rows(rng, 64, 1.0, 2.0), seed=step)
    assert 0.45 < belief.rho < 0.7
    assert belief.charged(1.0, 2.0) == pytest.approx(1.0 - 2.0 * belief.rho)


def test_losses_are_never_a_reason_to_be_slow() -> None:
    """A negative rate would pay for waiting."""
    rng = random.Random(0)
    assert RewardRate().after(*rows(rng, 64, -10.0, 5.0), seed=0).rho == 0


def test_too_few_rows_change_nothing_and_bad_ones_are_refused() -> None:
    belief = RewardRate().after([1, 1], [1, 2], seed=0)
    assert belief.after([5], [1], seed=1) == belief
    assert belief.after([], [], seed=1) == belief
    with pytest.raises(ValueError, match="positive duration"):
        belief.after([1, 2], [1, 0], seed=0)


def test_the_belief_survives_a_checkpoint_and_the_seed_decides() -> None:
    belief = RewardRate().after([1, 2, 0.5], [1, 2, 3], seed=3)
    again = RewardRate.from_dict(json.loads(json.dumps(belief.as_dict())))
    assert again == belief
    assert again.after([1, 2], [1, 2], seed=4) == belief.after([1, 2], [1, 2], seed=4)
