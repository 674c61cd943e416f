"""The smallest policy that shows what a weighting does: a softmax over a few arms (method.md 2.5).

Batch policies, inclusion, weights and whitening are the project's own; only the policy is a toy. Two arms can't show
the effect: with a batch-mean baseline no positive weight changes the sign of their update. A third arm that fails makes
the race away from it decide.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlrl_core.experience.batch_policy import BatchPolicy
from mlrl_core.experience.simulator import Program, Site, simulate
from mlrl_core.experience.weights import DurationWeighting, duration_weights

SIGMA = 0.2  # of the logarithm of durations
NOISE = 0.02  # of rewards
INCLUSION_CAP = 20.0
DURATION_CAP = 5.0


@dataclass(frozen=True, slots=True)
class Arm:
    """Mean reward, mean duration in seconds, share at the start."""

    reward: float
    duration_s: float
    start: float


@dataclass(frozen=True, slots=True)
class Pull:
    """One solution: which arm, and what it earned."""

    arm: int
    reward: float


def lognormal(rng: random.Random, mean_s: float) -> float:
    """A duration with this mean."""
    return mean_s * rng.lognormvariate(-(SIGMA**2) / 2, SIGMA)


def train_bandit(
    arms: Sequence[Arm],
    policy: BatchPolicy | None,
    site: Site,
    weighting: DurationWeighting,
    seed: int,
    steps: int = 200,
    step_size: float = 1.0,
    floor_s: float = 0.0,
) -> list[float]:
    """The shares of the arms after ``steps`` updates. ``policy`` None is the paper's premise: an arm is completed in
    proportion to its probability over its duration."""
    import torch

    from mlrl_core.ppo.advantages import whiten

    rng = random.Random(seed)
    logits = [math.log(arm.start) for arm in arms]

    def draw(shares: Sequence[float]) -> Program[Pull]:
        arm = rng.choices(range(len(arms)), shares)[0]
        reward = arms[arm].reward + NOISE * rng.gauss(0, 1)
        return Program(Pull(arm, reward), lognormal(rng, arms[arm].duration_s))

    def premise() -> Iterator[tuple[list[Program[Pull]], list[float]]]:
        while True:
            shares = [p / arm.duration_s for p, arm in zip(_softmax(logits), arms, strict=True)]
            yield [draw(shares) for _ in range(site.in_flight)], [1.0] * site.in_flight

    def batches() -> Iterator[tuple[list[Program[Pull]], list[float]]]:
        assert policy is not None
        for batch in simulate(lambda: draw(_softmax(logits)), policy, site):
            yield list(batch.programs), list(batch.inclusion)

    source = premise() if policy is None else batches()
    for _ in range(steps):
        programs, inclusion = next(source)
        if len(programs) < 2:
            continue
        rewards = torch.tensor([[p.item.reward] for p in programs], dtype=torch.float64)
        advantages = whiten(rewards, torch.ones_like(rewards)).squeeze(1).tolist()
        cap = {"clipped": DURATION_CAP, "inverse_inclusion": INCLUSION_CAP}.get(weighting)
        durations = [p.duration_s for p in programs]
        weights = duration_weights(durations, weighting, floor_s, cap=cap, inclusion=inclusion)
        shares = _softmax(logits)
        pull = [0.0] * len(arms)  # the gradient of log pi is one-hot minus shares: sums per arm are enough
        for program, weight, advantage in zip(programs, weights, advantages, strict=True):
            pull[program.item.arm] += weight * advantage / len(programs)
        total = sum(pull)
        logits = [x + step_size * (p - share * total) for x, p, share in zip(logits, pull, shares, strict=True)]
        top = max(logits)
        logits = [max(x - top, -12.0) for x in logits]  # an arm that is gone can still come back
    return _softmax(logits)


def _softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    powers = [math.exp(x - top) for x in logits]
    return [power / sum(powers) for power in powers]
