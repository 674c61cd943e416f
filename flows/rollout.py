"""One wave: every solution goes through its stages by itself, each stage a task run of its own."""

from __future__ import annotations

import queue
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner

from flows.labels import label_flow_run
from flows.stopping import stoppable
from mlrl_core.errors import InfraError
from mlrl_core.experience.cuts import wave_ids
from mlrl_core.experience.episodes import action_of
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.experience.launches import log_launch, read_launches
from mlrl_core.experience.run_directory import slot_of
from mlrl_core.records import Execution, Solution
from tasks.execute import execute
from tasks.generate import generate
from tasks.instrument import instrument
from tasks.resources import Resources, resources_of
from tasks.sampling import Interrupted
from tasks.score import close_as_infra_error, close_with_its_episode, score

_POLL_S = 0.25
_SAMPLES_OF_ONE_WAVE = 512  # the ceiling of `wave_size`: every solution may wait in a thread of its own

# What follows on a stage's answer; `score` ends it.
_NEXT = {"generate": "instrument", "instrument": "execute", "execute": "score"}
_STAGES = ("generate", *_NEXT.values())


def _name() -> str:
    parameters = flow_run.parameters
    return f"rollout {Path(parameters['run_dir']).name} wave {parameters['wave']}"


@flow(
    name="rollout",
    flow_run_name=_name,
    task_runner=ThreadPoolTaskRunner(max_workers=_SAMPLES_OF_ONE_WAVE),  # type: ignore[arg-type]
    persist_result=False,
)
def rollout(run_dir: str, wave: int) -> None:
    """Bring every solution of the wave to its experience row, then compact the wave.

    Solutions that have a row are left alone, others go on from what they have published. A solution that the
    infrastructure fails for good becomes an ``infra_error`` row; more than half of them failing is no bad luck
    but a broken machine, and raises InfraError without writing those rows, so that a resume tries again.

    Where an episode has two actions, the second ones follow when all first ones have their rows: so they are sampled
    in one pass, and the same ones after a kill.

    Once a cut has ended the wave (``WaveControl.halt``), what has not ended is closed as ``cancelled``.
    """
    resources = resources_of(run_dir)
    label_flow_run(resources.run)
    ids = wave_ids(resources.run, resources.config, wave)
    there = set(resources.store.ids(wave))
    if not there.issuperset(ids):
        course = _Wave(resources, wave, len(ids), Counter({stage: len(there) for stage in _STAGES}))
        actions = resources.config.improve.actions
        with stoppable(resources.cancel, resources.run):
            for action in range(actions):
                members = [each for each in ids if action_of(each, actions) == action]
                course.run(members, [each for each in members if each not in there])
    resources.store.compact(wave)
    resources.flights.launch(wave)  # all rows are there, whichever task was repeated after writing its own
    shutil.rmtree(resources.run.path / "work" / f"wave={wave:05d}", ignore_errors=True)


@dataclass
class _Wave:
    """The running wave. Only the flow's thread touches it: tasks report through the queue."""

    resources: Resources
    wave: int
    size: int
    done: Counter[str]
    lost: dict[str, str] = field(default_factory=dict)  # id -> what failed
    events: queue.Queue[tuple[str, str, PrefectFuture[Any]]] = field(default_factory=queue.Queue)
    active: int = 0

    def __post_init__(self) -> None:
        config = self.resources.config
        self.control = self.resources.control(self.wave)
        self.tasks = {stage.name: stage.for_run(config) for stage in (generate, instrument, execute, score)}
        self.deadline_s = sum(stage.deadline_s(config) for stage in (generate, instrument, execute, score)) * 4

    def run(self, members: Sequence[str], missing: Sequence[str]) -> None:
        """Drive the missing ones of the solutions that are one action of their episodes through their stages; returns
        when all have their rows."""
        if missing:
            missing = self.close_what_has_nothing_to_follow_on(missing)
        if self.control.halted.is_set():
            self.close_left_over(missing)
        else:
            for solution_id in missing:
                log_launch(self.resources.run, solution_id, "launched")
                self.submit("generate", solution_id)
        end = time.monotonic() + self.deadline_s
        while self.active:
            if self.resources.stopping:
                self.control.kill.set()
            try:
                stage, solution_id, future = self.events.get(timeout=_POLL_S)
            except queue.Empty:
                if time.monotonic() > end:
                    raise InfraError(f"wave {self.wave}: not ended within {self.deadline_s:g} s") from None
                continue
            self.active -= 1
            self.advance(stage, solution_id, future)
        if self.resources.stopping:
            raise Interrupted
        self.close_lost(len(members))

    def submit(self, stage: str, solution_id: str) -> None:
        """Start one stage of one solution."""
        arguments = (str(self.resources.run.path), self.resources.competition_of(solution_id), solution_id)
        future = self.tasks[stage].submit(*arguments)
        self.active += 1
        future.add_done_callback(lambda done: self.events.put((stage, solution_id, done)))

    def advance(self, stage: str, solution_id: str, future: PrefectFuture[Any]) -> None:
        """Start what follows on a stage that has ended."""
        if self.resources.stopping:
            return
        answer = future.result(raise_on_failure=False)
        if not future.state.is_completed():
            self.lost[solution_id] = f"{stage}: {type(answer).__name__}: {answer}"
        elif (stage == "generate" and answer == "no_code") or (self.control.halted.is_set() and stage != "score"):
            self.submit("score", solution_id)
        elif stage in _NEXT:
            self.submit(_NEXT[stage], solution_id)
        self.count(stage)

    def count(self, *stages: str) -> None:
        """Of one solution these stages are over."""
        self.done.update(stages)
        if self.done["generate"] >= self.size:
            self.control.sampled.set()
        if self.wave == self.resources.flights.newest:
            self.resources.listener.wave(self.wave, self.done, self.size)

    def close_what_has_nothing_to_follow_on(self, missing: Sequence[str]) -> list[str]:
        """Rows for actions whose episode was lost with the one before; returns the others."""
        slots = set(self.resources.sampled_with(missing[0]))
        for solution_id in missing:
            if slot_of(solution_id) not in slots:
                close_with_its_episode(self.resources, solution_id)
                self.count(*_STAGES)
        return [each for each in missing if slot_of(each) in slots]

    def close_left_over(self, missing: Sequence[str]) -> None:
        """After a resume: end what the wave's cut found unfinished. A program that was running then died with its
        process, and nobody knows when it had started."""
        launches = read_launches(self.resources.run, self.wave)
        for solution_id in missing:
            work = WorkFolder(self.resources.run, solution_id)
            started = "started" in launches.get(solution_id, {})
            if work.get(Solution) is None or (started and work.get(Execution) is None):
                close_as_infra_error(self.resources, solution_id, "ended with its process while the batch was cut")
            else:
                self.submit("score", solution_id)

    def close_lost(self, asked: int) -> None:
        """Rows for what the infrastructure has lost, or InfraError when that is most of the ``asked`` solutions."""
        if len(self.lost) * 2 > asked:
            first = min(self.lost)
            raise InfraError(
                f"wave {self.wave}: {len(self.lost)} of {asked} solutions failed on "
                f"infrastructure, first {first}: {self.lost[first]}"
            )
        for solution_id, reason in sorted(self.lost.items()):
            close_as_infra_error(self.resources, solution_id, reason)
        self.lost.clear()
