"""What the tasks of a process share, per run: opened once by the flow that owns the run, found by run directory.

Tasks take primitives, so that a task run is small and can be repeated; the live objects are looked up here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlrl_core.config import RunConfig
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.cuts import wave_ids
from mlrl_core.experience.episodes import action_of, previous_of
from mlrl_core.experience.flights import Flights
from mlrl_core.experience.run_directory import slot_of, wave_of
from mlrl_core.records import EXCLUDED_OUTCOMES, Execution, InstrumentedProgram, Score
from mlrl_core.reporting.progress import Listener, Silent
from mlrl_core.tracking import Tracker
from tasks.sampling import Agent, Interrupted, WaveSampler


class Sandbox(Protocol):
    """The part of ``mlrl_core.sandbox.Sandbox`` that a run uses."""

    def run(
        self,
        source: str,
        inputs: Path,
        *,
        collect_to: Path,
        nonce: str,
        milestones: Sequence[str],
        cancel: threading.Event | None,
        solution_id: str,
    ) -> Execution: ...
    def close(self) -> None: ...


class Update(Protocol):
    """The part of the learner's ``UpdateResult`` that a run uses."""

    @property
    def version(self) -> int: ...
    @property
    def version_dir(self) -> Path: ...
    @property
    def metrics(self) -> dict[str, float]: ...


class Learner(Protocol):
    """The part of ``LearnerClient`` that a run uses."""

    def update(self, batch_id: str, batch_path: Path, digest: str, parent_version: int) -> Update: ...


@dataclass(frozen=True)
class Arena:
    """One competition of a run: its public data, and what its submissions are worth."""

    inputs: Path
    grade: Callable[[Path], Score]
    map_score: Callable[[float], float]


@dataclass
class WaveControl:
    """How a running wave is told to end. ``kill`` ends its programs; with ``halted`` a cut has done so, and what was
    killed is recorded as such. ``sampled``: all its solutions are there."""

    kill: threading.Event = field(default_factory=threading.Event)
    halted: threading.Event = field(default_factory=threading.Event)
    sampled: threading.Event = field(default_factory=threading.Event)

    def halt(self) -> None:
        """End the wave at a cut."""
        self.halted.set()
        self.kill.set()


@dataclass
class Resources:
    """One run's live objects. ``cancel`` set means: end soon, publish nothing half done; ``failed`` the same, without
    anybody having asked for it."""

    run: RunDirectory
    config: RunConfig
    arenas: Mapping[str, Arena]  # by competition id
    agent: Agent
    load_version: Callable[[int, Path], None]
    instrument: Callable[[str, str], InstrumentedProgram]  # code, nonce
    sandbox: Sandbox
    learner: Learner
    tracker: Tracker
    abort: Callable[[], None]  # end the learner and every program now; callable twice, from any thread
    generation_metrics: Callable[[], dict[str, float]] = dict
    serving: Callable[[int], int] = lambda version: version  # which is sampled where that one is asked for
    version_of: Callable[[int], int] = lambda wave: wave - 1  # which samples a wave
    cancel: threading.Event = field(default_factory=threading.Event)
    failed: threading.Event = field(default_factory=threading.Event)
    listener: Listener = field(default_factory=Silent)
    _controls: dict[int, WaveControl] = field(default_factory=dict)
    _passes: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = ExperienceStore(self.run)
        self.flights = Flights(self.run, self.config, self.store)
        self.sampler = WaveSampler(self.agent, lambda: self.stopping, self.config.generation.pass_deadline_s)

    @property
    def stopping(self) -> bool:
        """Whether everything is to end soon."""
        return self.cancel.is_set() or self.failed.is_set()

    def check(self) -> None:
        """Raise Interrupted once the run is being stopped."""
        if self.stopping:
            raise Interrupted

    def control(self, wave: int) -> WaveControl:
        """What ends a wave."""
        return self._controls.setdefault(wave, WaveControl())

    def competition_of(self, solution_id: str) -> str:
        """The competition that a solution is for."""
        return self.config.competition_of_slot(slot_of(solution_id))

    def sampled_with(self, solution_id: str) -> tuple[int, ...]:
        """The slots that are sampled in one pass with a solution: those of the same action in the wave. Where one
        follows on another, only those that have something to follow on; the rows of that must be there.
        """
        wave, actions = wave_of(solution_id), self.config.improve.actions
        action = action_of(solution_id, actions)
        if (wave, action) not in self._passes:
            found = [each for each in wave_ids(self.run, self.config, wave) if action_of(each, actions) == action]
            if action:
                outcomes = dict(self.store.frame([wave], ["solution_id", "outcome"]).iter_rows())
                found = [each for each in found if outcomes[previous_of(each, actions)] not in EXCLUDED_OUTCOMES]
            self._passes[wave, action] = tuple(slot_of(each) for each in found)
        return self._passes[wave, action]


_open: dict[str, Resources] = {}
_listeners: dict[str, Listener] = {}


@contextmanager
def listening(run_dir: str, listener: Listener) -> Iterator[None]:
    """Let the flow that opens the run tell ``listener`` how it goes."""
    _listeners[run_dir] = listener
    try:
        yield
    finally:
        del _listeners[run_dir]


def listener_of(run_dir: str) -> Listener:
    """Who listens to a run; nobody, unless someone has said so."""
    return _listeners.get(run_dir, Silent())


@contextmanager
def registered(resources: Resources) -> Iterator[Resources]:
    """Let the tasks of this process find the resources of a run."""
    key = str(resources.run.path)
    if key in _open:
        raise RuntimeError(f"{key} is open already in this process")
    _open[key] = resources
    try:
        yield resources
    finally:
        del _open[key]


def resources_of(run_dir: str) -> Resources:
    """The resources of a run that a flow of this process has opened. Raises Interrupted once it is being stopped."""
    if run_dir not in _open:
        raise RuntimeError(f"{run_dir} is not open in this process: tasks run within the flow that owns the run")
    resources = _open[run_dir]
    resources.check()
    return resources


def find_resources(run_dir: str) -> Resources | None:
    """The resources of a run, or None where no one has opened it here."""
    return _open.get(run_dir)
