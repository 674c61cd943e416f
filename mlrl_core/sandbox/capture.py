"""What a running program says: both streams kept within bounds, the start line and the milestones taken out."""

from __future__ import annotations

import threading
import time

from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.output import MilestoneFilter, StartLine, StreamKeeper

START_LINE_S = 60.0  # a program that has not started by then never will
EXIT_S = 15.0  # from a kill to the exit that it causes
TICK_S = 0.05  # how often a run looks at its cancel event


class Capture:
    """``feed`` takes the streams' chunks, from any thread; the start line's arrival is the run's time zero."""

    def __init__(self, limits: Limits, milestones: MilestoneFilter) -> None:
        self.milestones = milestones
        self.stdout, self.stderr = StreamKeeper(limits.keep), StreamKeeper(limits.keep)
        self.t0: float | None = None  # monotonic
        self.started_at = 0.0  # seconds since the epoch; 0 = not started
        self._limit = limits.output
        self._lock = threading.Lock()
        self._start = StartLine()
        self._printed = 0

    @property
    def never_started(self) -> bool:
        """Something else came where the start line should be."""
        return self._start.failed

    def feed(self, is_stdout: bool, data: bytes) -> bool:
        """Take one chunk; False when more was printed than the limit of both streams together."""
        with self._lock:
            self._printed += len(data)
            if is_stdout:
                self._feed_stdout(data)
            else:
                self.stderr.feed(data)
            return self._printed <= self._limit

    def _feed_stdout(self, data: bytes) -> None:
        begun = self._start.seen
        data = self._start.feed(data)
        if self._start.seen and not begun:
            self.started_at, self.t0 = time.time(), time.monotonic()
            self._printed = len(data)
        self.stdout.feed(self.milestones.feed(data) if self._start.seen else data)

    def finish(self) -> None:
        """The streams have ended: keep what was held back as a possible milestone."""
        with self._lock:
            self.stdout.feed(self.milestones.finish())

    def last_words(self) -> str:
        """``: <the last line of stderr, else of stdout>``, or empty: for the message that a program never started."""
        with self._lock:
            lines = (self.stderr.capture().tail or self.stdout.capture().tail).strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""

    def next_wait(self, limit_s: float, killed: bool) -> float:
        """Seconds until a deadline or the cancel event must be looked at again."""
        if self.t0 is None or killed:
            return TICK_S
        return min(TICK_S, max(0.001, self.t0 + limit_s - time.monotonic()))
