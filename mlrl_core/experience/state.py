"""``state.json``: how far a run is, for people and listings, and the wall clock of its steps.

What is *done* is decided from experiences and versions; this file only remembers what they can't say.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

from mlrl_core.errors import MlrlError
from mlrl_core.experience.codec import decode, encode
from mlrl_core.experience.files import publish_text
from mlrl_core.experience.run_directory import RunDirectory

RunStatus = Literal["running", "interrupted", "failed", "finished"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """``wall_s``: seconds of training up to the end of this step, stops between resumes not counted."""

    step: int
    wall_s: float
    finished_at: float  # epoch seconds


@dataclass(frozen=True, slots=True)
class RunState:
    """Progress of a run."""

    status: RunStatus = "running"
    next_wave: int = 1
    next_step: int = 1
    steps: tuple[StepTime, ...] = ()

    @property
    def wall_s(self) -> float:
        return self.steps[-1].wall_s if self.steps else 0.0

    def after(self, step: int, wall_s: float, finished_at: float) -> RunState:
        """The state once ``step`` is done. A step repeated after a kill replaces its earlier time."""
        kept = tuple(time for time in self.steps if time.step < step)
        return RunState("running", step + 1, step + 1, (*kept, StepTime(step, wall_s, finished_at)))

    def ended(self, status: RunStatus) -> RunState:
        """The state after the process that trained has ended."""
        return dataclasses.replace(self, status=status)


def read_state(run: RunDirectory) -> RunState:
    """The last state written, or that of a run not yet begun. Raises MlrlError for a damaged file."""
    if not run.state_path.exists():
        return RunState()
    try:
        return decode(RunState, json.loads(run.state_path.read_text()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MlrlError(
            f"{run.state_path} is damaged ({error}): remove it, what is done is known from experiences and versions"
        ) from None


def write_state(run: RunDirectory, state: RunState) -> None:
    """Publish the state."""
    publish_text(run.state_path, json.dumps(encode(state), indent=1))
