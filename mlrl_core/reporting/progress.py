"""What a training run tells whoever watches: a live table on a terminal, one line per step elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mlrl_core.experience.statistics import StepStatistics

STAGES = ("generate", "instrument", "execute", "score")


class Listener(Protocol):
    """Told by the flow, in the flow's thread; must be quick and must not raise."""

    def note(self, text: str) -> None:
        """Something that happens once: a part started, a warning."""

    def progress(self, text: str) -> None:
        """How far something long has come; replaces what was said before."""

    def wave(self, step: int, done: Mapping[str, int], total: int) -> None:
        """How many solutions of the running wave have left each stage."""

    def updating(self, step: int) -> None:
        """The wave is closed, the learner works."""

    def step(self, statistics: StepStatistics, wall_s: float, seconds_left: float) -> None:
        """A step is done: its version is published."""


class Silent:
    """Tells nobody."""

    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...
    def wave(self, step: int, done: Mapping[str, int], total: int) -> None: ...
    def updating(self, step: int) -> None: ...
    def step(self, statistics: StepStatistics, wall_s: float, seconds_left: float) -> None: ...
