"""The reward rule of method.md section 4, row by row."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrl_core.agent import outcome_of, reward_of
from mlrl_core.agent.reward import charged_duration_s
from mlrl_core.config import load_config
from mlrl_core.config.environment import RewardConfig
from mlrl_core.records import OUTCOMES, Execution, Outcome, Score, StreamCapture

CONFIG = RewardConfig()
VALID = Score(raw=0.2, valid=True, is_lower_better=True)
INVALID = Score(raw=None, valid=False, is_lower_better=True, reason="row_count")


def execution(**changes: Any) -> Execution:
    empty = StreamCapture("", "", 0)
    fields: dict[str, Any] = {
        "status": "ok",
        "exit_code": 0,
        "signal": None,
        "duration_s": 1.0,
        "wall_s": 1.1,
        "queue_s": 0.0,
        "cpu_s": 1.0,
        "peak_memory_mb": 100.0,
        "stdout": empty,
        "stderr": empty,
        "milestones": (),
        "milestone_values": {},
        "submission_state": "ok",
        "submission_reason": None,
        "submission_path": "submission.csv",
        "submission_bytes": 10,
        "started_at": 0.0,
        "finished_at": 1.0,
        "backend": "process",
    }
    return Execution(**(fields | changes))


@pytest.mark.parametrize(
    ("run", "score", "outcome"),
    [
        (None, None, "no_code"),
        (execution(), VALID, "graded"),
        (execution(), INVALID, "invalid_submission"),
        (execution(submission_state="refused"), None, "invalid_submission"),
        (execution(submission_state="missing"), None, "no_submission"),
        (execution(status="error", exit_code=3), VALID, "error"),  # wrote the file, then crashed
        (execution(status="timeout"), VALID, "timeout"),
        (execution(status="oom"), None, "oom"),
        (execution(status="output_limit"), None, "output_limit"),
        (execution(status="cancelled"), None, "cancelled"),
        (execution(status="infra_error"), None, "infra_error"),
    ],
)
def test_outcome(run: Execution | None, score: Score | None, outcome: Outcome) -> None:
    assert outcome_of(run, score) == outcome


@pytest.mark.parametrize(
    ("outcome", "mapped", "milestones", "total"),
    [
        ("no_code", None, 0, -10.0),
        ("error", None, 0, -10.0),
        ("error", None, 3, -9.7),
        ("timeout", None, 4, -9.6),
        ("no_submission", None, 5, -9.5),
        ("invalid_submission", None, 5, -9.5),
        ("graded", 0.0, 5, 0.0),  # a score of exactly zero is valid, and milestones add nothing to it
        ("graded", 0.9, 0, 0.9),
        ("graded", -36.04, 0, -5.0),
    ],
)
def test_reward(outcome: Outcome, mapped: float | None, milestones: int, total: float) -> None:
    reward = reward_of(outcome, mapped, milestones, CONFIG)
    assert reward is not None
    assert reward.total == pytest.approx(total)


def test_no_reward_for_what_the_policy_did_not_do() -> None:
    assert reward_of("infra_error", None, 3, CONFIG) is None
    assert reward_of("cancelled", None, 3, CONFIG) is None


@given(st.sampled_from([o for o in OUTCOMES if o not in ("graded", "infra_error", "cancelled")]),
       st.integers(0, 7), st.floats(-1e6, 1e6))  # fmt: skip
def test_any_graded_program_beats_any_failure(outcome: Outcome, milestones: int, mapped: float) -> None:
    failed, graded = reward_of(outcome, None, milestones, CONFIG), reward_of("graded", mapped, 0, CONFIG)
    assert failed is not None
    assert graded is not None
    assert math.isfinite(graded.total)
    assert failed.total < graded.total


SWITCHES = st.builds(
    RewardConfig,
    partial_credit=st.sampled_from(["milestones", "error_line", "none"]),
    credit_on_valid=st.booleans(),
    failure_charge=st.sampled_from(["elapsed", "limit"]),
)


@given(
    SWITCHES,
    st.sampled_from([o for o in OUTCOMES if o not in ("graded", "infra_error", "cancelled")]),
    st.integers(0, 10_000),
    st.floats() | st.just(math.nan),
    st.floats(-1e300, 1e300),
    st.sampled_from(["flag", "valid_floor"]),
)
def test_under_every_switch_any_graded_program_beats_any_failure(
    config: RewardConfig, outcome: Outcome, milestones: int, share: float, mapped: float, action: Any
) -> None:
    failed = reward_of(outcome, None, milestones, config, share)
    graded = reward_of("graded", mapped, milestones, config, share, action)
    assert failed is not None
    assert graded is not None
    assert math.isfinite(failed.total)
    assert math.isfinite(graded.total)
    assert failed.total < graded.total


@pytest.mark.parametrize(
    ("switch", "outcome", "milestones", "share", "total"),
    [
        ({"partial_credit": "none"}, "error", 5, 0.9, -10.0),
        ({"partial_credit": "error_line"}, "error", 5, 0.5, -9.65),
        ({"partial_credit": "error_line"}, "error", 5, 0.0, -10.0),
        ({"partial_credit": "error_line"}, "no_submission", 0, 1.0, -9.3),
        ({"partial_credit": "milestones"}, "error", 2, 0.9, -9.8),
        ({"partial_credit": "milestones"}, "error", 10_000, 0.0, -9.3),  # no more than there are
        ({"credit_on_valid": True}, "graded", 5, 1.0, 0.7),
        ({"credit_on_valid": False}, "graded", 5, 1.0, 0.2),
        ({"credit_on_valid": True, "partial_credit": "none"}, "graded", 5, 1.0, 0.2),
    ],
)
def test_switches(switch: dict[str, Any], outcome: Outcome, milestones: int, share: float, total: float) -> None:
    reward = reward_of(outcome, 0.2 if outcome == "graded" else None, milestones, RewardConfig(**switch), share)
    assert reward is not None
    assert reward.total == pytest.approx(total)


@pytest.mark.parametrize(("action", "total"), [("flag", 0.7), ("valid_floor", -5.0), ("penalty", -10.0)])
def test_what_a_hack_costs(action: Any, total: float) -> None:
    reward = reward_of("graded", 0.7, 5, RewardConfig(credit_on_valid=action != "flag"), action=action)
    assert reward is not None
    assert (reward.total, reward.mapped_score) == (pytest.approx(total), 0.7)
    failed = reward_of("error", None, 1, RewardConfig(), action=action)
    assert failed is not None
    assert failed.total == pytest.approx(-9.9)


def test_the_profile_of_the_quickstart_pays_what_it_paid() -> None:
    config = load_config("nano").reward
    table = {("no_code", 0): -0.8, ("error", 3): -0.77, ("timeout", 5): -0.75, ("invalid_submission", 5): -0.75}
    for (outcome, milestones), total in table.items():
        reward = reward_of(cast(Outcome, outcome), None, milestones, config)
        assert reward is not None
        assert reward.total == pytest.approx(total)
    for mapped, total in ((1.1, 1.1), (0.0, 0.0), (-3.0, -0.4)):
        reward = reward_of("graded", mapped, 5, config)
        assert reward is not None
        assert reward.total == total


def test_a_failure_may_be_charged_the_whole_limit() -> None:
    elapsed, limit = RewardConfig(), RewardConfig(failure_charge="limit")
    for outcome in ("error", "no_code", "no_submission", "oom"):
        assert charged_duration_s(cast(Outcome, outcome), 2.0, 600.0, elapsed) == 2.0
        assert charged_duration_s(cast(Outcome, outcome), 2.0, 600.0, limit) == 600.0
    assert charged_duration_s("graded", 2.0, 600.0, limit) == 2.0


def test_a_graded_solution_without_a_finite_score_is_our_fault() -> None:
    with pytest.raises(ValueError):
        reward_of("graded", float("nan"), 0, CONFIG)


def test_rewards_that_could_meet_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reward\.valid_floor"):
        RewardConfig(milestone_credit=1.0)
