"""What a batch counts, from its rows, its cut and the launches beside it; all numbers by hand."""

from __future__ import annotations

import dataclasses

import pytest

from mlrl_core.config import load_config
from mlrl_core.config.learning import BatchConfig
from mlrl_core.experience.cuts import CutRecord, batch_policy_of
from mlrl_core.experience.reward_rate import RewardRate
from mlrl_core.experience.weighing import Launch, Weighed, weigh
from mlrl_core.records import Experience
from tests.fakes import experience

CARRY = ("batch.batch_policy=first_k_carry", "batch.size=2", "batch.on_stale=drop", "batch.max_staleness=1")


def row(slot: int, duration_s: float, wave: int = 3, started_at: float = 100.0, **facts: object) -> Experience:
    made = experience(wave, slot, duration_s=duration_s, **facts)  # type: ignore[arg-type]
    return dataclasses.replace(made, started_at=started_at, finished_at=started_at + duration_s)


def weighed(
    rows: list[Experience],
    *overrides: str,
    at: float = 110.0,
    launches: list[Launch] | None = None,
    cut_times: dict[int, float] | None = None,
    rates: dict[str, RewardRate] | None = None,
) -> Weighed:
    config = load_config("nano", ["wave_size=4", "batch.size=4", *overrides])
    settings: BatchConfig = config.batch
    ids = tuple(each.solution.solution_id for each in rows)
    cut = CutRecord(3, at, 100.0, ids, (*ids, "00003-099"), 7)
    return weigh(
        rows,
        settings,
        batch_policy_of(config),
        cut,
        launches or [],
        cut_times or {},
        rates or {},
        0,
        config.improve.actions,
    )


def test_where_nothing_is_cut_everything_counts_alike() -> None:
    found = weighed([row(0, 1), row(1, 9)], "batch.duration_weighting=inverse_inclusion")
    assert (found.weights, found.inclusion, found.available_s) == ([1.0, 1.0], [1.0, 1.0], [None, None])
    assert found.metrics["inclusion/min_p"] == found.metrics["inclusion/q5"] == 1
    assert found.metrics["inclusion/unfinished_share_top_decile"] == 0
    assert (found.metrics["batch/unused"], found.metrics["batch/in_flight"]) == (1, 7)
    assert found.warnings == []


def test_an_episode_is_included_by_its_last_action_and_weighs_by_each() -> None:
    """Last actions start at 100, 104 and 107, cut at 110: C is 10, 6 and 3. Durations 1 and 5 are included 3 and 2
    times of 3; that first actions took 20 and 40 s changes nothing, but each counts by its own under mean_normalised.
    """
    first = [row(0, 20, started_at=70.0), row(2, 40, started_at=50.0)]
    second = [row(1, 1), row(3, 5, started_at=104.0)]
    rows = [first[0], second[0], first[1], second[1]]
    launches = [Launch(3, 100.0, True), Launch(3, 104.0, True), Launch(3, 107.0, False)]
    window = ("batch.batch_policy=window", "batch.window_s=10", "improve.improve_prob=0.5", "improve.episode=two_step")
    found = weighed(rows, *window, "batch.duration_weighting=inverse_inclusion", launches=launches)
    assert found.inclusion == pytest.approx([1, 1, 2 / 3, 2 / 3])
    assert found.available_s == [10.0, 10.0, 6.0, 6.0]
    assert found.weights == pytest.approx([0.8, 0.8, 1.2, 1.2])
    by_duration = weighed(rows, *window, "batch.duration_weighting=mean_normalised", launches=launches)
    assert by_duration.weights == pytest.approx([20 / 16.5, 1 / 16.5, 40 / 16.5, 5 / 16.5])
    assert by_duration.rewards == [0.5] * 4  # each its own; the learner adds up episodes
    assert by_duration.metrics["episode/return_mean"] == 1.0


def test_a_window_weighs_by_the_time_each_launch_had() -> None:
    """Starts at 100, 104 and 108, cut at 110: C is 10, 6 and 2. Durations 1 and 5 are included 3 and 2 times of 3."""
    rows = [row(0, 1), row(1, 5, started_at=104.0)]
    launches = [Launch(3, 100.0, True), Launch(3, 104.0, True), Launch(3, 108.0, False)]
    window = ("batch.batch_policy=window", "batch.window_s=10", "batch.duration_weighting=inverse_inclusion")
    found = weighed(rows, *window, launches=launches)
    assert found.available_s == [10.0, 6.0]
    assert found.inclusion == pytest.approx([1.0, 2 / 3])
    assert found.weights == pytest.approx([0.8, 1.2])  # 1 and 1.5 over their mean of 1.25
    assert found.warnings == []
    # The launch with the most time was killed all the same: nothing restores what can't be admitted.
    lost = weighed(rows, *window, launches=[Launch(3, 100.0, False), *launches[1:]])
    assert any("no weight brings them back" in text for text in lost.warnings)
    # A launch of before a resume has no more time than the window that opened last.
    old = weighed(rows, *window, launches=[Launch(3, 20.0, True), *launches[1:]])
    assert old.inclusion == found.inclusion


def test_with_drops_inclusion_waits_for_enough_launches_whose_last_cut_has_passed() -> None:
    """Wave 2 was last usable at step 3, by version 2, cut at 110; wave 3 still has one to come."""
    rows = [row(0, 1, wave=2, started_at=105.0), row(0, 2)]
    few = weighed(rows, *CARRY, "batch.duration_weighting=inverse_inclusion", launches=[Launch(2, 105.0, True)])
    assert few.weights == [1.0, 1.0]
    assert any("inverse_inclusion counts all alike until then" in text for text in few.warnings)
    launches = [Launch(2, 105.0, True), Launch(2, 109.0, False)]
    enough = weighed(
        rows, *CARRY, "batch.duration_weighting=inverse_inclusion", launches=launches, cut_times={2: 110.0}
    )
    assert enough.available_s == [5.0, None]
    assert enough.inclusion == [1.0, 0.5]  # C is 5 and 1
    assert enough.metrics["batch/carried_frac"] == 0.5


def test_caps_floors_and_their_shares() -> None:
    rows = [row(slot, duration_s) for slot, duration_s in enumerate([0.1, 0.1, 0.1, 99.7])]
    found = weighed(rows, "batch.duration_weighting=clipped", "batch.duration_weight_cap=2")
    assert found.weights == pytest.approx([4 / 102.7] * 3 + [2])
    assert found.metrics["duration_weight/floored_frac"] == 0.75
    assert found.metrics["duration_weight/capped_frac"] == 0.25
    free = weighed([*rows, *(row(slot, 0.1) for slot in range(4, 9))], "batch.duration_weighting=mean_normalised")
    assert any("a few solutions are the gradient" in text for text in free.warnings)


def test_competitions_have_durations_and_rates_of_their_own() -> None:
    def of(each: Experience, name: str) -> Experience:
        return dataclasses.replace(each, solution=dataclasses.replace(each.solution, competition_id=name))

    rows = [of(row(0, 1), "quick"), of(row(1, 3), "quick"), of(row(2, 100), "slow"), of(row(3, 300), "slow")]
    found = weighed(rows, "batch.duration_weighting=mean_normalised")
    assert found.weights == pytest.approx([0.5, 1.5, 0.5, 1.5])
    rates = weighed(rows, "batch.duration_weighting=reward_rate")
    assert set(rates.rates) == {"quick", "slow"}
    assert rates.rates["quick"].rho > 10 * rates.rates["slow"].rho > 0
    assert rates.metrics["reward_rate/rho/quick"] == rates.rates["quick"].rho


def test_the_rate_charges_for_time_and_failures_earn_nothing() -> None:
    before = {"toy": RewardRate().after([1, 1, 1], [2, 2, 2], seed=1)}
    rows = [row(0, 2, raw=0.8), row(1, 4, raw=0.6), row(2, 0.2, outcome="error")]
    found = weighed(
        rows, "batch.duration_weighting=reward_rate", "batch.time_charge=0.5", "reward.failure=-1", rates=before
    )
    rate = found.rates["toy"]
    assert rate != before["toy"]
    assert rate.mean[0] > 0  # the failure's -10 is no income
    assert found.weights == [1.0, 1.0, 1.0]
    totals = [each.reward.total for each in rows if each.reward]
    charges = [total - reward for total, reward in zip(totals, found.rewards, strict=True)]
    assert charges == pytest.approx([0.5 * rate.rho * seconds for seconds in (2, 4, 1)])  # the floor is a second
    again = weighed(
        rows, "batch.duration_weighting=reward_rate", "batch.time_charge=0.5", "reward.failure=-1", rates=before
    )
    assert again == found


def test_one_outcome_alone_is_said() -> None:
    assert any(
        "every solution of the batch is error" in text
        for text in weighed([row(i, 1, outcome="error") for i in (0, 1)]).warnings
    )
    assert weighed([row(0, 1), row(1, 1)]).warnings == []


def test_a_failure_that_is_charged_its_limit_weighs_as_one_that_took_it() -> None:
    def charging(each: Experience, seconds: float) -> Experience:
        assert each.reward is not None
        return dataclasses.replace(each, reward=dataclasses.replace(each.reward, charged_s=seconds))

    rows = [row(0, 6), charging(row(1, 2, outcome="error"), 18.0)]
    assert weighed(rows, "batch.duration_weighting=mean_normalised").weights == pytest.approx([0.5, 1.5])
    # Its inclusion goes by the time it ran: it was there early.
    window = ("batch.batch_policy=window", "batch.window_s=10", "batch.duration_weighting=inverse_inclusion")
    launches = [Launch(3, 100.0, True), Launch(3, 107.0, True)]
    assert weighed(rows, *window, launches=launches).inclusion == pytest.approx([0.5, 1.0])
