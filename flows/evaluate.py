"""Evaluate a version of a run: fresh solutions, then improvements as the run has trained them, and no update."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Cancelled

from flows.labels import label_flow_run
from flows.rollout import rollout
from flows.stopping import stoppable
from mlrl_core.agent.improving import CANDIDATE_COLUMNS, candidates_of
from mlrl_core.evaluation.directory import IMPROVE_WAVE, SOLVE_WAVE, evaluation_of
from mlrl_core.evaluation.summary import COLUMNS, metrics_of, summarise
from mlrl_core.experience import RunDirectory
from mlrl_core.experience.plans import SlotPlan, write_plan
from mlrl_core.tracking.tracker import EndStatus
from tasks.opening import open_resources
from tasks.resources import Resources, find_resources, listener_of


def _name() -> str:
    parameters = flow_run.parameters
    return f"evaluate {Path(parameters['run_dir']).name} version {parameters['version']}"


@flow(name="evaluate", flow_run_name=_name, persist_result=False)
def evaluate(run_dir: str, version: int, solutions: int = 64) -> Any:
    """Sample, run and grade ``solutions`` fresh answers of a published version to the solve prompt, and where the run
    improves solutions one improvement of each valid one. Returns the summary's metrics.

    Everything lies in ``<run>/evaluation/<version>``; an evaluation that was cut off goes on, one that is complete is
    only summarised again. The seeds are the run's own, so versions answer with the same random numbers.
    """
    trained = RunDirectory.open(Path(run_dir))
    run = evaluation_of(trained, version, solutions)
    shared = find_resources(str(run.path))
    label_flow_run(run)
    cancel = shared.cancel if shared else threading.Event()
    again = f"mlrl evaluate {trained.path} --version {version} --solutions {solutions}"
    with stoppable(cancel, run, again):
        try:
            if shared is not None:
                return _evaluate(shared, trained, version, solutions)
            listener = listener_of(str(trained.path))
            with run.owned(), open_resources(run, cancel, listener, learns=False) as resources:
                return _evaluate(resources, trained, version, solutions)
        except BaseException:
            if not cancel.is_set():
                raise
            return Cancelled(message=f"interrupted: go on by `{again}`")


def _evaluate(resources: Resources, trained: RunDirectory, version: int, solutions: int) -> dict[str, Any]:
    status: EndStatus = "FAILED"
    try:
        resources.version_of = lambda _: version
        resources.load_version(version, trained.version(version) / "adapter")
        competitions = resources.config.competition
        _roll_out(resources, SOLVE_WAVE, [SlotPlan(competitions.of_episode(slot)) for slot in range(solutions)])
        if resources.config.improve.improve_prob > 0:
            everything = trained.load_config().improve.episode == "two_step"
            _roll_out(resources, IMPROVE_WAVE, _improvements(resources, everything))
        rows = resources.store.frame(None, COLUMNS)
        metrics = metrics_of(summarise(version, rows, lambda name, raw: resources.arenas[name].map_score(raw)))
        resources.tracker.log_metrics(version, metrics, time.time())
        status = "FINISHED"
        return metrics
    except BaseException:
        status = "KILLED" if resources.cancel.is_set() else "FAILED"
        resources.failed.set()
        resources.abort()
        raise
    finally:
        resources.tracker.end(status)


def _improvements(resources: Resources, everything: bool) -> list[SlotPlan]:
    """One improvement of every valid solution, or of every one (a policy that was trained on that). A slot's place says
    which competition it is for, so where one has fewer of them than its neighbours a solve prompt fills the slot; the
    summary leaves it out."""
    left: dict[str, list[SlotPlan]] = {}
    rows = resources.store.frame([SOLVE_WAVE], CANDIDATE_COLUMNS)
    for each in candidates_of(rows, resources.config.hacks, everything):
        plans = left.setdefault(each.competition_id, [])
        plans.append(SlotPlan(each.competition_id, each.solution_id, each.reward))
    plan: list[SlotPlan] = []
    while any(left.values()):
        competition_id = resources.config.competition_of_slot(len(plan))
        mine = left.get(competition_id)
        plan.append(mine.pop(0) if mine else SlotPlan(competition_id))
    return plan


def _roll_out(resources: Resources, wave: int, plan: Sequence[SlotPlan]) -> None:
    if not plan:
        return
    resources.config = resources.config.model_copy(update={"wave_size": len(plan)})
    write_plan(resources.run, wave, tuple(plan))
    rollout(str(resources.run.path), wave)
