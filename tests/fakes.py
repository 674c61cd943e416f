"""Stand-ins for the parts that a test is not about, and example records."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from mlrl_core.experience import solution_id_of
from mlrl_core.records import (
    Execution,
    Experience,
    InstrumentedProgram,
    Outcome,
    Reward,
    Score,
    Solution,
    StreamCapture,
)

_STATUS = {
    "timeout": "timeout",
    "error": "error",
    "oom": "oom",
    "output_limit": "output_limit",
    "cancelled": "cancelled",
}


def experience(
    wave: int,
    slot: int,
    outcome: str = "graded",
    reward: float | None = None,
    raw: float = 0.5,
    duration_s: float = 1.0,
    code: str = "print(1)",
    text: str | None = None,
    milestone_values: dict[str, float] | None = None,
) -> Experience:
    """A consistent row with every part that its outcome has."""
    has_code = outcome not in ("no_code", "infra_error")
    solution = Solution(
        solution_id=solution_id_of(wave, slot),
        competition_id="toy",
        wave=wave,
        slot=slot,
        prompt_kind="solve",
        parent_id=None,
        policy_version=wave - 1,
        seed=slot,
        prompt_ids=(1, 2, 3),
        response_ids=(4, 5, 0),
        log_probs=(-0.1, -1 / 3, -0.25),
        finish_reason="stop",
        text=code if text is None else text,
        plan="",
        code=code if has_code else None,
        generated_at=100.0,
        generation_s=0.5,
    )
    execution = Execution(
        status=cast(Any, _STATUS.get(outcome, "ok")),
        exit_code=1 if outcome == "error" else 0,
        signal=None,
        duration_s=duration_s,
        wall_s=duration_s + 0.1,
        queue_s=0.2,
        cpu_s=None,
        peak_memory_mb=12.5,
        stdout=StreamCapture("head", "", 4),
        stderr=StreamCapture("", "", 0),
        milestones=("import", "load"),
        milestone_values=milestone_values or {},
        submission_state="ok" if outcome in ("graded", "invalid_submission") else "missing",
        submission_reason=None,
        submission_path=None,
        submission_bytes=10,
        started_at=101.0,
        finished_at=102.0,
        backend="fake",
    )
    graded = outcome == "graded"
    scored = outcome in ("graded", "invalid_submission")
    total = (raw if graded else -10.0) if reward is None else reward
    return Experience(
        solution=solution,
        program=InstrumentedProgram(code, "ast", "abc", ("import",), (1,)) if has_code else None,
        execution=execution if has_code else None,
        score=Score(raw if graded else None, graded, True, versions={"scikit-learn": "1"}) if scored else None,
        reward=None
        if outcome in ("infra_error", "cancelled")
        else Reward(total, cast(Outcome, outcome), raw if graded else None, 0.0),
        outcome=cast(Outcome, outcome),
        generated_at=100.0,
        queued_at=100.8,
        started_at=101.0,
        finished_at=102.0,
    )


def with_version(row: Experience, version: int) -> Experience:
    """The row as if sampled by another policy version."""
    return dataclasses.replace(row, solution=dataclasses.replace(row.solution, policy_version=version))
