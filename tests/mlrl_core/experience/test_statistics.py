"""Statistics of a step against values worked out by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.statistics import run_statistics
from mlrl_core.records import Score
from mlrl_core.tracking.names import Cumulative, step_metrics
from tests.fakes import experience, with_version


@pytest.fixture
def store(tmp_path: Path) -> ExperienceStore:
    return ExperienceStore(RunDirectory.create(tmp_path / "run", load_config("nano")))


def test_one_wave_by_hand(store: ExperienceStore) -> None:
    store.append(experience(1, 0, reward=0.5, raw=0.2, duration_s=1.0))
    store.append(experience(1, 1, reward=1.0, raw=0.1, duration_s=3.0))
    store.append(experience(1, 2, "error", duration_s=0.5))
    store.append(experience(1, 3, "no_code"))
    store.append(experience(1, 4, "infra_error"))
    (step,) = run_statistics(store, store.waves())
    assert (step.step, step.rows, step.counted) == (1, 5, 4)
    assert step.valid_share == 0.5
    assert step.reward_mean == pytest.approx((0.5 + 1.0 - 20.0) / 4)
    assert step.reward_max == 1.0
    assert step.valid_reward_mean == 0.75
    assert step.valid_reward_sem == pytest.approx(0.25)  # sd .3536 / sqrt 2
    assert step.outcome_share["graded"] == 0.4
    assert step.outcome_share["infra_error"] == 0.2
    assert sum(step.outcome_share.values()) == pytest.approx(1)
    assert step.duration_mean_s == pytest.approx(1.5)
    assert (step.duration_p50_s, step.duration_max_s) == (1.0, 3.0)
    assert step.duration_p95_s == pytest.approx(2.8)
    assert step.valid_duration_mean_s == 2.0
    assert step.execution_s == 4.5
    assert step.generated_tokens == 15
    assert step.no_plan_share == 1.0
    assert step.milestones_mean == pytest.approx(6 / 4)  # `no_code` has none
    assert step.best is not None
    assert (step.best.solution_id, step.best.raw) == ("00001-001", 0.1)


def test_a_wave_of_failures_has_no_means(store: ExperienceStore) -> None:
    store.append(experience(1, 0, "infra_error"))
    store.append(experience(1, 1, "cancelled", duration_s=9.0))
    (step,) = run_statistics(store, store.waves())
    assert (step.counted, step.valid_share, step.reward_mean, step.duration_mean_s) == (0, 0.0, None, None)
    assert step.best is None
    assert step.outcome_share["cancelled"] == 0.5


def test_best_is_carried_and_a_tie_keeps_the_earlier(store: ExperienceStore) -> None:
    store.append(experience(1, 0, raw=0.3))
    store.append(experience(2, 0, raw=0.3))
    store.append(experience(3, 5, raw=0.2))
    store.append(experience(4, 0, raw=0.9))
    best = [step.best.solution_id for step in run_statistics(store, store.waves()) if step.best]
    assert best == ["00001-000", "00001-000", "00003-005", "00003-005"]


def test_staleness_counts_versions_behind(store: ExperienceStore) -> None:
    store.append(experience(3, 0))
    store.append(with_version(experience(3, 1), 0))
    (step,) = run_statistics(store, store.waves())
    assert (step.staleness_mean, step.staleness_max) == (1.0, 2)


def test_what_improving_brought(store: ExperienceStore) -> None:
    store.append(experience(2, 0, reward=0.5))
    for slot, (outcome, reward) in enumerate([("graded", 0.9), ("graded", 0.3), ("error", -10.0)], start=1):
        row = experience(2, slot, outcome, reward=reward)
        solution = dataclasses.replace(row.solution, prompt_kind="improve", parent_id="00001-000", parent_reward=0.4)
        store.append(dataclasses.replace(row, solution=solution))
    (step,) = run_statistics(store, store.waves())
    assert step.improve_share == 0.75
    assert step.solve_reward_mean == 0.5
    assert step.improve_reward_mean == pytest.approx((0.9 + 0.3 - 10) / 3)
    assert step.improve_gain_mean == pytest.approx((0.5 - 0.1) / 2)  # a failure has no score to compare
    assert step.improve_win_rate == pytest.approx(1 / 3)
    assert step.improve_best_of_two_mean == pytest.approx((0.9 + 0.4 + 0.4) / 3)


def test_a_mended_failure_is_no_gain(store: ExperienceStore) -> None:
    """Episodes of two actions: 0.5 -> 0.7, a failure -> 0.4, a failure -> a failure, 0.6 -> a failure."""
    pairs = [("graded", 0.5, "graded", 0.7), ("error", -10.0, "graded", 0.4)]
    pairs += [("no_code", -10.0, "timeout", -9.9), ("graded", 0.6, "error", -10.0)]
    for i, (first, before, second, after) in enumerate(pairs):
        solve = experience(1, 2 * i, first, reward=before)
        store.append(solve)
        row = experience(1, 2 * i + 1, second, reward=after)
        parent_id = solve.solution.solution_id
        solution = dataclasses.replace(row.solution, prompt_kind="improve", parent_id=parent_id, parent_reward=before)
        store.append(dataclasses.replace(row, solution=solution))
    (step,) = run_statistics(store, store.waves())
    assert step.improve_share == 0.5
    assert step.improve_gain_mean == pytest.approx(0.2)
    assert step.improve_mended_share == 0.5
    assert step.improve_win_rate == pytest.approx(3 / 4)
    assert step.improve_best_of_two_mean == pytest.approx((0.7 + 0.4 - 9.9 + 0.6) / 4)


def test_without_improve_prompts_there_is_nothing_to_say(store: ExperienceStore) -> None:
    store.append(experience(1, 0))
    (step,) = run_statistics(store, store.waves())
    assert (step.improve_share, step.improve_gain_mean, step.improve_win_rate) == (0.0, None, None)


def test_several_competitions_are_told_apart(store: ExperienceStore) -> None:
    for slot, (name, outcome, reward, raw) in enumerate(
        [("a", "graded", 0.5, 100.0), ("b", "graded", 0.9, 0.2), ("a", "error", -10.0, 0.0), ("b", "graded", 0.7, 0.1)]
    ):
        row = experience(1, slot, outcome, reward=reward, raw=raw)
        store.append(dataclasses.replace(row, solution=dataclasses.replace(row.solution, competition_id=name)))
    (step,) = run_statistics(store, store.waves())
    assert step.best is not None
    assert step.best.solution_id == "00001-001"  # by reward: raw scores don't compare
    a, b = step.competitions["a"], step.competitions["b"]
    assert (a.reward_mean, a.valid_reward_mean, a.valid_share, a.best_raw) == (-4.75, 0.5, 0.5, 100.0)
    assert (b.reward_mean, b.valid_share, b.best_raw) == (pytest.approx(0.8), 1.0, 0.1)
    metrics = step_metrics(step, {}, Cumulative(1.0, 1.0, 1, 1))
    assert metrics["a/reward/mean"] == -4.75
    assert metrics["b/score/best"] == 0.1


def test_numbers_of_valued_milestones_are_averaged(store: ExperienceStore) -> None:
    store.append(experience(1, 0, milestone_values={"training loss": 1.0, "validation score": 0.5}))
    store.append(experience(1, 1, "error", milestone_values={"training loss": 2.0}))
    store.append(experience(1, 2, "no_code"))
    (step,) = run_statistics(store, store.waves())
    assert step.milestone_values == {"training loss": 1.5, "validation score": 0.5}
    assert step.competitions == {}
    metrics = step_metrics(step, {}, Cumulative(1.0, 1.0, 1, 1))
    assert metrics["milestones/training_loss_mean"] == 1.5


def test_flags_are_counted_and_the_report_half_goes_along(store: ExperienceStore) -> None:
    score = Score(0.1, True, True, report_raw=0.3)
    store.append(dataclasses.replace(experience(1, 0, raw=0.1), flags=("no_training", "sleeping"), score=score))
    store.append(dataclasses.replace(experience(1, 1, raw=0.2), flags=("sleeping",)))
    (step,) = run_statistics(store, store.waves())
    assert step.flag_share == {"no_training": 0.5, "sleeping": 1.0}
    assert step.best is not None
    assert step.best.report_raw == 0.3
    metrics = step_metrics(step, {}, Cumulative(1.0, 1.0, 1, 1))
    assert metrics["hacks/no_training_frac"] == 0.5
    assert metrics["hacks/sample_copy_frac"] == 0.0
    assert metrics["best_so_far_report"] == 0.3
