"""The display of a training run: a live table on a terminal, one plain line per event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlrl_core.experience.statistics import StepStatistics
from mlrl_core.reporting.progress import STAGES, Listener

_SAY_EVERY_S = 15.0  # lines about something long, where lines stay
_ROWS = 12  # steps shown; earlier ones scroll away


def seconds(value: float | None) -> str:
    """``3.2 s``, ``12 min``, or a dash."""
    if value is None:
        return "-"
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"


def number(value: float | None, digits: int = 2) -> str:
    """A fixed number of digits, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


class Lines:
    """One line per step, for logs and pipes."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._said = -_SAY_EVERY_S

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def progress(self, text: str) -> None:
        if time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            self.note(text)

    def wave(self, step: int, done: Mapping[str, int], total: int) -> None: ...

    def updating(self, step: int) -> None: ...

    def step(self, statistics: StepStatistics, wall_s: float, seconds_left: float) -> None:
        best = f"{statistics.best.raw:.4f}" if statistics.best else "-"
        self.note(
            f"step {statistics.step:3d}/{self._steps}  reward {number(statistics.reward_mean)}  "
            f"valid {statistics.valid_share:.0%}  reward of valid {number(statistics.valid_reward_mean)}  best {best}  "
            f"duration {seconds(statistics.valid_duration_mean_s)}  left {seconds(seconds_left)}"
        )


class LiveTable:
    """The live table."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._rows: list[tuple[str, ...]] = []
        self._status = "starting"
        self._since = time.monotonic()
        self._left: float | None = None
        self._left_at = self._since
        self.live: Live | None = None

    def note(self, text: str) -> None:
        if self.live is not None:
            self.live.console.print(text, markup=False, highlight=False)
        self._status = text

    def progress(self, text: str) -> None:
        self._status = text

    def wave(self, step: int, done: Mapping[str, int], total: int) -> None:
        stages = "   ".join(f"{stage} {done.get(stage, 0)}/{total}" for stage in STAGES)
        self._status = f"step {step}/{self._steps}   {stages}"

    def updating(self, step: int) -> None:
        self._status = f"step {step}/{self._steps}   updating the policy"

    def step(self, statistics: StepStatistics, wall_s: float, seconds_left: float) -> None:
        self._left, self._left_at = seconds_left, time.monotonic()
        self._rows.append(
            (
                f"{statistics.step}",
                number(statistics.reward_mean),
                f"{statistics.valid_share:.0%}",
                number(statistics.valid_reward_mean),
                f"{statistics.best.raw:.4f}" if statistics.best else "-",
                seconds(statistics.valid_duration_mean_s),
                seconds(seconds_left),
            )
        )

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("step", "mean reward", "valid", "reward of valid", "best score", "mean duration", "time left"):
            table.add_column(title, justify="right")
        for row in self._rows[-_ROWS:]:
            table.add_row(*row)
        now = time.monotonic()
        left = ""
        if self._left is not None:
            left = f"   about {seconds(max(self._left - (now - self._left_at), 0.0))} left"
        return Group(table, Text(f"{self._status}   {now - self._since:.0f} s{left}", style="dim"))


@contextmanager
def display(console: Console, steps: int) -> Iterator[Listener]:
    """The listener that fits the console."""
    if not console.is_terminal:
        yield Lines(console, steps)
        return
    table = LiveTable(steps)
    with Live(table, console=console, refresh_per_second=4) as live:
        table.live = live
        yield table
