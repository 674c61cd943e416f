"""The regimes of method.md 2.3 and 2.5, with the numbers that its own scripts measured."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

from mlrl_core.experience.bandit import Arm, lognormal
from mlrl_core.experience.batch_policy import BatchPolicy
from mlrl_core.experience.simulator import Program, SimulatedBatch, Site, simulate, weighted_share
from mlrl_core.experience.weights import DurationWeighting, duration_weights

WEIGHTINGS: tuple[DurationWeighting, ...] = ("none", "mean_normalised", "inverse_inclusion")
FAST_S, SLOW_S = 1.0, 10.0


@dataclass(frozen=True)
class Regime:
    """``expected``: share of the slow action under each of WEIGHTINGS; NaN where nothing was measured. ``batches`` are
    taken after ``burn_in``."""

    name: str
    policy: BatchPolicy
    site: Site
    expected: tuple[float, float, float]
    batches: int = 100
    burn_in: int = 0


def carry(size: int, staleness: int | None = None) -> tuple[BatchPolicy, Site]:
    return BatchPolicy("first_k_carry", 128, max_staleness=staleness), Site(size, refill=True)


def discard(launched: int, slots: int | None = None) -> tuple[BatchPolicy, Site]:
    return BatchPolicy("first_k_discard", 128), Site(launched, slots)


def window(seconds: float, actors: int = 128, refill: bool = True) -> tuple[BatchPolicy, Site]:
    return BatchPolicy("window", 128, window_s=seconds), Site(actors, refill=refill)


NAN = math.nan
REGIMES = (
    Regime("wait_all", BatchPolicy("wait_all", 128), Site(128), (0.50, 0.907, 0.50)),
    Regime("first_k_carry, 256 in flight", *carry(256), (0.50, 0.909, 0.50), 200, 40),
    Regime("first_k_carry, 512 in flight", *carry(512), (0.50, 0.908, 0.50), 200, 40),
    Regime("carry 256, drop older than 8", *carry(256, 8), (0.504, 0.909, 0.504), 150, 40),
    Regime("carry 256, drop older than 4", *carry(256, 4), (0.474, 0.895, 0.493), 150, 40),
    Regime("carry 256, drop older than 3", *carry(256, 3), (0.422, 0.867, 0.483), 150, 40),
    Regime("carry 512, drop older than 4", *carry(512, 4), (0.265, 0.736, 0.366), 150, 40),
    Regime("carry 512, drop older than 2", *carry(512, 2), (0.042, 0.214, NAN), 150, 40),
    Regime("carry 1024, drop older than 2", *carry(1024, 2), (0.0, 0.0, NAN), 150, 40),
    Regime("first_k_discard 160 to 128, all at once", *discard(160), (0.376, 0.836, NAN)),
    Regime("first_k_discard 192 to 128, all at once", *discard(192), (0.250, 0.718, NAN)),
    Regime("first_k_discard 224 to 128, all at once", *discard(224), (0.126, 0.481, NAN)),
    Regime("first_k_discard 256 to 128, all at once", *discard(256), (0.024, 0.112, NAN)),
    Regime("first_k_discard 192 to 128, 64 slots", *discard(192, 64), (0.321, 0.805, 0.443)),
    Regime("first_k_discard 192 to 128, 32 slots", *discard(192, 32), (0.412, 0.870, 0.51)),
    Regime("first_k_discard 192 to 128, 16 slots", *discard(192, 16), (0.454, 0.891, 0.505)),
    Regime("window 12 s, 128 actors", *window(12), (0.325, 0.815, 0.450), 40),
    Regime("window 15 s, 128 actors", *window(15), (0.348, 0.839, 0.497), 40),
    Regime("window 30 s, 128 actors", *window(30), (0.420, 0.877, 0.501), 40),
    Regime("window 60 s, 128 actors", *window(60), (0.464, 0.896, 0.501), 40),
    Regime("window 8 s, one program per actor", *window(8, refill=False), (0.135, 0.522, NAN)),
    Regime("window 10 s, one program per actor", *window(10, refill=False), (0.357, 0.823, NAN)),
    Regime("window 15 s, one program per actor", *window(15, refill=False), (0.490, 0.903, NAN)),
)


def slow_shares(regime: Regime, seed: int = 0) -> list[float]:
    """Measured share of the slow action under each of WEIGHTINGS; half of all launched programs are slow."""
    rng = random.Random(seed)

    def draw() -> Program[str]:
        slow = rng.random() < 0.5
        return Program("slow" if slow else "fast", lognormal(rng, SLOW_S if slow else FAST_S))

    stream = simulate(draw, regime.policy, regime.site)
    taken = itertools.islice(stream, regime.burn_in, regime.burn_in + regime.batches)
    batches = [batch for batch in taken if batch.programs]
    return [weighted_share(batches, [weigh(b, weighting) for b in batches], "slow") for weighting in WEIGHTINGS]


def weigh(batch: SimulatedBatch[str], weighting: DurationWeighting) -> list[float]:
    durations = [p.duration_s for p in batch.programs]
    cap = 20.0 if weighting == "inverse_inclusion" else None
    return duration_weights(durations, weighting, 0.0, cap=cap, inclusion=batch.inclusion)


@dataclass(frozen=True)
class Cell:
    """A regime of the bandit. ``wins`` per weighting: seeds of 20 in which the best arm ends above one half, where the
    slow arm is best and where the fast one is; None where nothing was measured."""

    name: str
    policy: BatchPolicy | None
    site: Site
    wins: dict[DurationWeighting, tuple[int, int] | None]
    slow_s: float = SLOW_S


def wins(
    none: tuple[int, int], mean: tuple[int, int], inverse: tuple[int, int] | None
) -> dict[DurationWeighting, tuple[int, int] | None]:
    return {"none": none, "mean_normalised": mean, "inverse_inclusion": inverse}


BOTH, SLOW_ONLY, FAST_ONLY = (20, 20), (20, 0), (0, 20)
CELLS = (
    Cell("premise: completed in proportion to pi / d", None, Site(128), wins(FAST_ONLY, BOTH, None)),
    Cell("wait_all", BatchPolicy("wait_all", 128), Site(128), wins(BOTH, SLOW_ONLY, BOTH)),
    Cell("first_k_carry, 256 in flight", *carry(256), wins(BOTH, BOTH, BOTH)),
    Cell("window 33 s, 64 actors, slow arm 30 s", *window(33, 64), wins(FAST_ONLY, SLOW_ONLY, BOTH), 30.0),
    Cell("window 11 s, 64 actors", *window(11, 64), wins(FAST_ONLY, BOTH, BOTH)),
    Cell("first_k_discard 160 to 128, 8 slots", *discard(160, 8), wins(BOTH, SLOW_ONLY, BOTH)),
    Cell("first_k_discard 160 to 128, all at once", *discard(160), wins(FAST_ONLY, FAST_ONLY, FAST_ONLY)),
    Cell("carry 256, drop older than 2", *carry(256, 2), wins(FAST_ONLY, FAST_ONLY, None)),
)


def arms(best: str, slow_s: float = SLOW_S, fail_s: float = 1.0) -> list[Arm]:
    """Fail, fast, slow; ``best`` says which of the last two earns more."""
    fast, slow = (0.62, 0.67) if best == "slow" else (0.67, 0.62)
    return [Arm(-10, fail_s, 0.9), Arm(fast, FAST_S, 0.05), Arm(slow, slow_s, 0.05)]
