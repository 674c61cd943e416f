"""Batch policies, inclusion and weights against the censoring analysis of method.md 2.3 and 2.5."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from mlrl_core.experience.bandit import Arm, train_bandit
from mlrl_core.experience.batch_policy import BatchPolicy, Flight, available_times, biased_pair, decide
from mlrl_core.experience.inclusion import inclusion_probabilities, inclusion_report
from mlrl_core.experience.simulator import Program, Site, simulate
from mlrl_core.experience.weights import DurationWeighting, duration_weights
from tests.mlrl_core.experience.duration_cells import CELLS, REGIMES, SLOW_S, Cell, Regime, arms, carry, slow_shares

INF = math.inf


def test_inclusion_by_hand() -> None:
    available = [-INF, 2.0, 5.0, 5.0]
    assert inclusion_probabilities([1, 2, 2.1, 5, 6], available) == [0.75, 0.75, 0.5, 0.5, 0.25]
    assert inclusion_probabilities([1e9], [INF] * 3) == [1]
    with pytest.raises(ValueError, match="needs the launches"):
        inclusion_probabilities([1], [])


def test_inverse_inclusion_and_clipped_by_hand() -> None:
    weights = duration_weights([1, 9], "inverse_inclusion", 0, cap=20, inclusion=[1.0, 0.25])
    assert weights == pytest.approx([0.4, 1.6])
    assert duration_weights([5] * 7 + [765], "clipped", 1, cap=5) == pytest.approx([0.05] * 7 + [5])
    with pytest.raises(ValueError, match="needs a cap"):
        duration_weights([1], "clipped", 1)
    with pytest.raises(ValueError, match="needs an inclusion probability"):
        duration_weights([1], "inverse_inclusion", 1, cap=20)


def test_the_inclusion_report_shows_where_positivity_is_lost() -> None:
    launches = [float(c) for c in range(20)]
    fine = inclusion_report([1, 2, 3, 4, 5], [1, 0.9, 0.8, 0.7, 0.6], launches, [True] * 20)
    assert fine.min_p == 0.6
    assert fine.quintiles == (1, 0.9, 0.8, 0.7, 0.6)
    assert fine.positive
    lost = inclusion_report([1], [1], launches, [c < 19 for c in launches])
    assert lost.unfinished_share_top_decile == 0.5
    assert not lost.positive


def flights(*ends: float | None, version: int = 0) -> list[Flight[str]]:
    return [Flight(str(i), version, 0.0, end) for i, end in enumerate(ends)]


def test_wait_all_waits_for_the_last() -> None:
    policy = BatchPolicy("wait_all", 3)
    assert decide(policy, flights(1, 2), 1, 0, 2, 0) is None
    cut = decide(policy, flights(1, 2, 3), 0, 0, 3, 0)
    assert cut is not None
    assert [f.item for f in cut.admitted] == ["0", "1", "2"]
    assert not cut.kills


def test_first_k_discard_takes_the_first_and_kills_the_rest() -> None:
    policy = BatchPolicy("first_k_discard", 2)
    assert decide(policy, flights(1), 3, 0, 1, 0) is None
    cut = decide(policy, flights(1, 2, 3), 3, 0, 3, 0)
    assert cut is not None
    assert [f.item for f in cut.admitted] == ["0", "1"]
    assert [f.item for f in cut.dropped] == ["2"]
    assert cut.kills
    waiting = Flight("w", 0, None, None)
    assert available_times(policy, [Flight("a", 0, 1.0, None), waiting], 3.0, {}) == [2.0, -INF]


def test_window_cuts_by_the_clock() -> None:
    policy = BatchPolicy("window", 2, window_s=10)
    assert decide(policy, flights(1, 2, 3), 9, 0, 14.9, 5) is None
    cut = decide(policy, flights(1, 2, 3), 9, 0, 15, 5)
    assert cut is not None
    assert len(cut.admitted) == 3
    assert cut.kills
    assert decide(policy, flights(1), 9, 0, 20, 5) is None  # one solution is no update
    early = decide(policy, flights(1, 2), 0, 0, 9, 5)
    assert early is not None
    assert early.at == 15  # what could have come in until then could have been used


def test_the_cut_of_first_k_is_the_end_of_the_kth() -> None:
    cut = decide(BatchPolicy("first_k_discard", 2), flights(1, 2, 3), 3, 0, 99, 0)
    assert cut is not None
    assert cut.at == 2


def test_where_nothing_is_pending_a_batch_is_what_there_is() -> None:
    for policy in (BatchPolicy("first_k_carry", 4), BatchPolicy("first_k_discard", 4)):
        assert decide(policy, flights(1, 2), 1, 0, 2, 0) is None
        cut = decide(policy, flights(1, 2), 0, 0, 2, 0)
        assert cut is not None
        assert len(cut.admitted) == 2
        assert decide(policy, [], 0, 0, 2, 0) is None


def test_first_k_carry_waits_for_what_would_be_too_old() -> None:
    policy = BatchPolicy("first_k_carry", 2, max_staleness=3, on_stale="wait")
    ended = flights(1, 2, 3, version=6)
    assert decide(policy, ended, 1, 6, 9, 0, oldest_pending=3) is None
    cut = decide(policy, ended, 1, 6, 9, 0, oldest_pending=4)
    assert cut is not None
    assert len(cut.admitted) == 2
    assert not policy.censors
    assert available_times(policy, ended, 9, {}) == [INF] * 3


def test_waiting_bounds_staleness_and_biases_nothing() -> None:
    rng = random.Random(0)
    policy = BatchPolicy("first_k_carry", 128, max_staleness=3, on_stale="wait")
    draws = simulate(lambda: Program(*slow_or_fast(rng)), policy, Site(256))
    batches = list(itertools.islice(draws, 40, 140))
    assert max(max(batch.staleness) for batch in batches) <= 3
    slow = sum(program.item == "slow" for batch in batches for program in batch.programs)
    assert slow / (100 * 128) == pytest.approx(0.5, abs=0.03)


def test_first_k_carry_takes_the_stalest_and_drops_what_is_too_old() -> None:
    ended = [Flight("new", 7, 0, 1), Flight("ancient", 3, 0, 2), Flight("old", 5, 0, 3), Flight("newer", 7, 0, 4)]
    waits = decide(BatchPolicy("first_k_carry", 2), ended, 5, 7, 4, 0)
    assert waits is not None
    assert [f.item for f in waits.admitted] == ["ancient", "old"]
    assert waits.dropped == ()
    drops = decide(BatchPolicy("first_k_carry", 2, max_staleness=2), ended, 5, 7, 4, 0)
    assert drops is not None
    assert [f.item for f in drops.admitted] == ["old", "new"]
    assert [f.item for f in drops.dropped] == ["ancient"]
    assert decide(BatchPolicy("first_k_carry", 4, max_staleness=2), ended, 5, 7, 4, 0) is None
    policy = BatchPolicy("first_k_carry", 2, max_staleness=2)
    # The last cut of version 3 was at 50; that of version 7 lies ahead.
    assert available_times(policy, [Flight("a", 3, 10.0, None), Flight("b", 7, 10.0, 12.0)], 60, {5: 50.0}) == [40.0]


def test_knobs_without_effect_are_refused() -> None:
    with pytest.raises(ValueError, match="needs window_s"):
        BatchPolicy("window", 2)
    with pytest.raises(ValueError, match="no effect"):
        BatchPolicy("wait_all", 2, max_staleness=3)
    program = Program("x", 1.0)
    with pytest.raises(ValueError, match="never fill"):
        simulate(lambda: program, BatchPolicy("first_k_discard", 8), Site(4))
    with pytest.raises(ValueError, match="never ends"):
        simulate(lambda: program, BatchPolicy("wait_all", 8), Site(8, refill=True))


@pytest.mark.parametrize(
    ("policy", "right"),
    [
        (BatchPolicy("wait_all", 2), "none"),
        (BatchPolicy("first_k_carry", 2), "none"),
        (BatchPolicy("first_k_carry", 2, max_staleness=3), "inverse_inclusion"),
        (BatchPolicy("first_k_carry", 2, max_staleness=3, on_stale="wait"), "none"),
        (BatchPolicy("first_k_discard", 2), "inverse_inclusion"),
        (BatchPolicy("window", 2, window_s=3), "inverse_inclusion"),
    ],
)
def test_only_the_matching_pair_draws_no_warning(policy: BatchPolicy, right: str) -> None:
    for weighting in ("none", "mean_normalised", "clipped", "inverse_inclusion"):
        assert (biased_pair(policy, weighting) is None) == (weighting == right)
    assert (biased_pair(policy, "reward_rate") is None) == (right == "none")


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name)
def test_shares_of_the_slow_action(regime: Regime) -> None:
    for measured, expected in zip(slow_shares(regime), regime.expected, strict=True):
        if not math.isnan(expected):
            assert measured == pytest.approx(expected, abs=0.03)


def test_carrying_starts_fast_heavy_and_slow_work_is_stale() -> None:
    """The first versions' share of slow programs (mean of 60 runs) and the staleness of method.md 2.3."""
    first = [0.0] * 8
    for seed in range(60):
        rng = random.Random(seed)
        batches = simulate(lambda rng=rng: Program(*slow_or_fast(rng)), *carry(256))
        for i, batch in enumerate(itertools.islice(batches, 8)):
            first[i] += sum(p.item == "slow" for p in batch.programs) / 128 / 60
    assert first == pytest.approx([0, 0.08, 0.68, 0.56, 0.43, 0.40, 0.57, 0.53], abs=0.03)
    rng = random.Random(0)
    late = itertools.islice(simulate(lambda: Program(*slow_or_fast(rng)), *carry(512)), 40, 140)
    stale: dict[str, list[int]] = {"fast": [], "slow": []}
    for batch in late:
        for program, age in zip(batch.programs, batch.staleness, strict=True):
            stale[program.item].append(age)
    assert sum(stale["fast"]) / len(stale["fast"]) == pytest.approx(0.7, abs=0.3)
    assert sum(stale["slow"]) / len(stale["slow"]) == pytest.approx(7.3, abs=0.3)


def slow_or_fast(rng: random.Random) -> tuple[str, float]:
    slow = rng.random() < 0.5
    return ("slow", 10 * rng.lognormvariate(-0.02, 0.2)) if slow else ("fast", rng.lognormvariate(-0.02, 0.2))


def won(cell: Cell, weighting: DurationWeighting, seeds: range, steps: int) -> tuple[int, int]:
    """Seeds in which the best arm ends above one half: where slow is best, where fast is."""
    counts = []
    for best, index in (("slow", 2), ("fast", 1)):
        world = arms(best, cell.slow_s)
        ends = [train_bandit(world, cell.policy, cell.site, weighting, seed, steps) for seed in seeds]
        counts.append(sum(end[index] > 0.5 for end in ends))
    return counts[0], counts[1]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_bandit_finds_the_best_arm_where_it_should(cell: Cell) -> None:
    """One seed of the twenty: in each cell the measured wins are all or none. The long window is slow to simulate and
    has made up its mind after 70 steps."""
    steps = 70 if cell.slow_s > SLOW_S else 200
    for weighting, expected in cell.wins.items():
        if expected is not None:
            assert won(cell, weighting, range(1), steps) == (expected[0] // 20, expected[1] // 20), weighting


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_bandit_over_twenty_seeds(cell: Cell) -> None:
    for weighting, expected in cell.wins.items():
        if expected is not None:
            assert won(cell, weighting, range(20), 200) == pytest.approx(expected, abs=2), weighting


def test_two_arms_cannot_show_the_effect() -> None:
    """With a batch-mean baseline the better of two arms wins under any weight and any regime."""
    cell = CELLS[3]  # the window that loses the slow arm of three
    for weighting in ("none", "mean_normalised", "inverse_inclusion"):
        two = [Arm(0.62, 1.0, 0.5), Arm(0.67, cell.slow_s, 0.5)]
        assert train_bandit(two, cell.policy, cell.site, weighting, 0, 70)[1] > 0.5  # type: ignore[arg-type]
