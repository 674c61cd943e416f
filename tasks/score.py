"""Grade one submission and close the solution: its experience row is the last thing written."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.agent import outcome_of, reward_of
from mlrl_core.agent.feedback import line_share
from mlrl_core.agent.hacks import action_of, detect
from mlrl_core.agent.reward import charged_duration_s
from mlrl_core.config.environment import RewardConfig
from mlrl_core.errors import MlrlError
from mlrl_core.experience.episodes import previous_of
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.experience.launches import log_launch
from mlrl_core.experience.run_directory import slot_of, solution_seed, wave_of
from mlrl_core.instrumentation import original_lines, without_nonce
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
from mlrl_core.sandbox.output import capture_text
from tasks.decorator import mlrl_task
from tasks.resources import Resources, resources_of

if TYPE_CHECKING:
    from mlrl_core.competitions import Competition

_log = logging.getLogger(__name__)

GRADE_DEADLINE_S = 300.0


@mlrl_task("score {competition} {solution_id}", deadline_s=lambda config: GRADE_DEADLINE_S + 60, retries=1)
def score(run_dir: str, competition: str, solution_id: str) -> str:
    """Publish the Experience and drop the hand-over files. Returns the outcome."""
    resources = resources_of(run_dir)
    work = WorkFolder(resources.run, solution_id)
    if resources.store.find(solution_id) is not None:
        work.remove()
        return "done before"
    solution = work.require(Solution)
    program = work.get(InstrumentedProgram)
    execution = work.get(Execution)
    if execution is None and solution.code is not None:
        if not resources.control(solution.wave).halted.is_set():
            raise FileNotFoundError(f"{work.path}: a program without its execution")
        return _close_as_never_started(resources, work, solution)
    graded = _grade(resources, solution, work, execution)
    outcome = outcome_of(execution, graded)
    shown = _for_people(execution, program)
    by_rule = program.milestones if program and program.inserter == "ast" else ()
    flags = detect(solution.code, execution, graded, by_rule)
    close(
        resources,
        Experience(
            solution=solution,
            program=program,
            execution=shown,
            score=graded,
            reward=_reward(resources, solution, shown, graded, outcome, flags),
            outcome=outcome,
            generated_at=solution.generated_at,
            queued_at=execution.started_at - execution.queue_s if execution else solution.generated_at,
            started_at=execution.started_at if execution else solution.generated_at,
            finished_at=execution.finished_at if execution else solution.generated_at,
            flags=flags,
        ),
    )
    return outcome


def _close_as_never_started(resources: Resources, work: WorkFolder, solution: Solution) -> str:
    """The row of a program that was still waiting when a cut ended its wave."""
    now = time.time()
    experience = Experience(
        solution=solution,
        program=work.get(InstrumentedProgram),
        execution=None,
        score=None,
        reward=None,
        outcome="cancelled",
        generated_at=solution.generated_at,
        queued_at=now,
        started_at=now,  # after the cut: it had no time at all
        finished_at=now,
        detail="not started when the batch was cut",
    )
    close(resources, experience)
    return experience.outcome


def _reward(
    resources: Resources,
    solution: Solution,
    execution: Execution | None,
    graded: Score | None,
    outcome: Outcome,
    flags: tuple[str, ...],
) -> Reward | None:
    """``execution`` as people see it: its lines are those of the program as written."""
    config = resources.config
    mapped = None
    if outcome == "graded" and graded is not None and graded.raw is not None:
        mapped = resources.arenas[solution.competition_id].map_score(graded.raw)
    stderr = capture_text(execution.stderr) if execution else ""
    reward = reward_of(
        outcome,
        mapped,
        len(execution.milestones) if execution else 0,
        config.reward,
        line_share(outcome, stderr, solution.code or ""),
        action_of(flags, config.hacks),
    )
    if reward is None:
        return None
    duration_s = execution.duration_s if execution else 0.0
    return replace(
        reward, charged_s=charged_duration_s(outcome, duration_s, config.sandbox.time_limit_s, config.reward)
    )


def _for_people(execution: Execution | None, program: InstrumentedProgram | None) -> Execution | None:
    """Tracebacks name the lines of the program as written and no inserted print shows; the submission goes with the
    work folder."""
    if execution is None or program is None:
        return execution

    def cleaned(text: str) -> str:
        return original_lines(without_nonce(text, program.nonce), program.line_map)

    def clean(stream: StreamCapture) -> StreamCapture:
        if stream.bytes < len(stream.head.encode()) + len(stream.tail.encode()):
            # Head and tail overlap; cleaned by themselves they would not fit together any more.
            whole = cleaned(capture_text(stream))
            return replace(stream, head=whole, tail=whole)
        return replace(stream, head=cleaned(stream.head), tail=cleaned(stream.tail))

    return replace(execution, stdout=clean(execution.stdout), stderr=clean(execution.stderr), submission_path=None)


def _grade(resources: Resources, solution: Solution, work: WorkFolder, execution: Execution | None) -> Score | None:
    if execution is None or execution.status != "ok" or execution.submission_state != "ok":
        return None
    return resources.arenas[solution.competition_id].grade(work.submission)


def open_grader(config: RewardConfig, competition: Competition) -> Callable[[Path], Score]:
    """The grader of a competition: on all answers, or (``reward.report_split``) on one half for the reward and on the
    other for the report.

    Raises MlrlError where the answers can't be split.
    """
    from mlrl_core.competitions import grade_in_child
    from mlrl_core.competitions.outside import is_outside

    if config.report_split and is_outside(competition):
        raise MlrlError(
            f"reward.report_split: '{competition.id}' is scored by a grader of its own, whose answers can't be split"
        )

    def grade(submission: Path) -> Score:
        if not config.report_split:
            return grade_in_child(competition, submission, GRADE_DEADLINE_S)
        score = grade_in_child(competition, submission, GRADE_DEADLINE_S, "reward")
        if not score.valid:
            return score
        return replace(score, report_raw=grade_in_child(competition, submission, GRADE_DEADLINE_S, "report").raw)

    return grade


def close(resources: Resources, experience: Experience) -> None:
    """Put the row in place, log the end of the launch, drop the hand-over files: in this order."""
    solution_id = experience.solution.solution_id
    resources.store.append(experience)
    resources.flights.end(solution_id, experience.outcome, experience.started_at, experience.finished_at)
    log_launch(resources.run, solution_id, "ended", experience.finished_at, experience.outcome)
    WorkFolder(resources.run, solution_id).remove()


def close_as_infra_error(resources: Resources, solution_id: str, reason: str) -> None:
    """The row of a solution that the infrastructure has lost: counted and shown, never trained on."""
    _log.warning("%s: infra_error (%s)", solution_id, reason)
    _close_unfinished(resources, solution_id, "infra_error", reason)


def close_with_its_episode(resources: Resources, solution_id: str) -> None:
    """The row of an action that was never sampled, since the one before it in its episode has no outcome to act on."""
    before = previous_of(solution_id, resources.config.improve.actions)
    assert before is not None, "a first action follows on nothing"
    _close_unfinished(resources, solution_id, resources.store.get(before).outcome, f"its episode ended with {before}")


def _close_unfinished(resources: Resources, solution_id: str, outcome: Outcome, detail: str) -> None:
    work = WorkFolder(resources.run, solution_id)
    now = time.time()
    solution = work.get(Solution) or _never_sampled(resources, solution_id, now)
    experience = Experience(
        solution=solution,
        program=work.get(InstrumentedProgram),
        execution=work.get(Execution),
        score=None,
        reward=None,
        outcome=outcome,
        generated_at=solution.generated_at,
        queued_at=solution.generated_at,
        started_at=solution.generated_at,
        finished_at=now,
        detail=detail,
    )
    close(resources, experience)


def _never_sampled(resources: Resources, solution_id: str, now: float) -> Solution:
    wave, slot = wave_of(solution_id), slot_of(solution_id)
    before = previous_of(solution_id, resources.config.improve.actions)
    return Solution(
        solution_id=solution_id,
        competition_id=resources.competition_of(solution_id),
        wave=wave,
        slot=slot,
        prompt_kind="improve" if before else "solve",
        parent_id=before,
        policy_version=resources.serving(resources.version_of(wave)),
        seed=solution_seed(resources.config.seed, wave, slot),
        prompt_ids=(),
        response_ids=(),
        log_probs=(),
        finish_reason="length",
        text="",
        plan="",
        code=None,
        generated_at=now,
        generation_s=0.0,
    )
