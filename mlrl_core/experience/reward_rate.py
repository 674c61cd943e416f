"""Reward per second, and the charge for time that follows from it (method.md 12.1).

The other stance to durations, that of average-reward reinforcement learning: a solution is charged ``c * d * rho`` for
its d seconds, where rho is an optimistic estimate of the reward that a second earns. No weight is then needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

FORGETTING = 0.3  # of what was known, per step
LEAST_FREEDOM = 4.0
QUANTILE = 0.95
SYNTHETIC_BATCHES = 1000


@dataclass(frozen=True, slots=True)
class RewardRate:
    """What is believed of (reward, log of seconds): a normal-inverse-Wishart distribution, and the rate it gives.

    Immutable; ``after`` returns the next one. ``as_dict`` and ``from_dict`` go into a checkpoint.
    """

    kappa: float = 1e-3
    nu: float = 3.0
    mean: tuple[float, float] = (0.0, 0.0)
    scatter: tuple[tuple[float, float], tuple[float, float]] = ((1e-3, 0.0), (0.0, 1e-3))
    rho: float = 0.0  # reward per second, never negative

    def after(self, rewards: Sequence[float], durations_s: Sequence[float], seed: int) -> RewardRate:
        """The belief after one batch; the same belief for fewer than two rows.

        rho becomes the 95th percentile, over synthetic batches of the same size drawn from the posterior predictive, of
        mean reward over mean duration. Durations must be positive. Raises ValueError otherwise.
        """
        n = len(rewards)
        if n != len(durations_s) or any(d <= 0 for d in durations_s):
            raise ValueError("reward rate needs a positive duration for each reward")
        if n < 2:
            return self
        x = np.column_stack([np.asarray(rewards, dtype=float), np.log(durations_s)])
        kappa, nu = FORGETTING * self.kappa, max(FORGETTING * self.nu, LEAST_FREEDOM)
        before, centre = np.array(self.mean), x.mean(axis=0)
        deviations = x - centre
        kappa_n, nu_n = kappa + n, nu + n
        shift = np.outer(centre - before, centre - before) * (kappa * n / kappa_n)
        scatter = FORGETTING * np.array(self.scatter) + deviations.T @ deviations + shift
        mean = (kappa * before + n * centre) / kappa_n
        rho = _optimistic_rate(mean, scatter * (kappa_n + 1) / (kappa_n * (nu_n - 1)), nu_n - 1, n, seed)
        (a, b), (c, d) = scatter.tolist()
        return RewardRate(kappa_n, nu_n, (float(mean[0]), float(mean[1])), ((a, b), (c, d)), rho)

    def charged(self, reward: float, duration_s: float, coefficient: float = 1.0) -> float:
        """The reward after the charge for its time."""
        return reward - coefficient * duration_s * self.rho

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> RewardRate:
        """The belief that ``as_dict`` described."""
        (a, b), (c, d) = state["scatter"]
        first, second = state["mean"]
        return cls(state["kappa"], state["nu"], (first, second), ((a, b), (c, d)), state["rho"])


def _optimistic_rate(mean: np.ndarray, scale: np.ndarray, freedom: float, n: int, seed: int) -> float:
    """``mean`` [2] and ``scale`` [2, 2] of a Student t with ``freedom`` degrees, over (reward, log seconds)."""
    rng = np.random.default_rng(seed)
    normal = rng.multivariate_normal(np.zeros(2), scale, size=(SYNTHETIC_BATCHES, n), method="eigh")
    spread = np.sqrt(freedom / rng.chisquare(freedom, size=(SYNTHETIC_BATCHES, n, 1)))
    rows = mean + normal * spread
    # Far in the tail a synthetic run would take longer than the universe: exp must not overflow for that.
    rates = rows[..., 0].mean(axis=1) / np.exp(rows[..., 1].clip(max=math.log(1e12))).mean(axis=1)
    return max(0.0, float(np.quantile(rates, QUANTILE)))
