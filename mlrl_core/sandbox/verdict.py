"""From what the host saw to an ``Execution``: the closed status set and its precedence."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Literal

from mlrl_core.records import Execution, ExecutionStatus, StreamCapture
from mlrl_core.sandbox.capture import Capture
from mlrl_core.sandbox.collector import Submission

KillReason = Literal["timeout", "output_limit", "cancelled"]
_IDLE_MIN_S, _IDLE_CPU_SHARE = 2.0, 0.1


class Verdict:
    """Why we killed, decided once: the first of kill reason and observed exit stands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decided: KillReason | Literal["exited"] | None = None

    def decide(self, reason: KillReason | Literal["exited"]) -> bool:
        """Record ``reason`` unless something was recorded before; call it before the kill is sent."""
        with self._lock:
            if self._decided is None:
                self._decided = reason
                return True
            return False

    @property
    def kill_reason(self) -> KillReason | None:
        return None if self._decided in (None, "exited") else self._decided  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Observed:
    """What the host measured of one run. Times in seconds; a counter that can't be read is None."""

    exit_code: int | None
    oom_seen: bool
    duration_s: float
    wall_s: float
    queue_s: float
    cpu_s: float | None
    peak_bytes: int | None
    started_at: float
    finished_at: float
    output_lost: bool = False
    clock_suspect: bool = False


def status_of(kill_reason: KillReason | None, exit_code: int | None, oom_seen: bool) -> ExecutionStatus:
    """timeout, output_limit, cancelled (we killed) before oom (reported and not 0) before error before ok."""
    if kill_reason is not None:
        return kill_reason
    if oom_seen and exit_code != 0:
        return "oom"
    return "ok" if exit_code == 0 else "error"


def execution(
    observed: Observed,
    verdict: Verdict,
    limit_s: float,
    capture: Capture,
    submission: Submission,
    backend: str,
) -> Execution:
    """The record of a run that took place (``infra_error`` raises instead)."""
    status = status_of(verdict.kill_reason, observed.exit_code, observed.oom_seen)
    duration = limit_s if status == "timeout" else min(observed.duration_s, limit_s)
    code = observed.exit_code
    stdout, stderr, milestones = capture.stdout, capture.stderr, capture.milestones
    idle = (
        observed.cpu_s is not None and duration > _IDLE_MIN_S and observed.cpu_s < _IDLE_CPU_SHARE * observed.duration_s
    )
    return Execution(
        status=status,
        exit_code=code,
        signal=code - 128 if code is not None and 128 < code < 193 else None,
        duration_s=duration,
        wall_s=observed.wall_s,
        queue_s=observed.queue_s,
        cpu_s=observed.cpu_s,
        peak_memory_mb=None if observed.peak_bytes is None else observed.peak_bytes / (1 << 20),
        stdout=stdout.capture(),
        stderr=stderr.capture(),
        milestones=tuple(milestones.seen),
        milestone_values=dict(milestones.values),
        submission_state=submission.state,
        submission_reason=submission.reason,
        submission_path=submission.path,
        submission_bytes=submission.bytes,
        started_at=observed.started_at,
        finished_at=observed.finished_at,
        backend=backend,
        oom_seen=observed.oom_seen,
        output_truncated=stdout.truncated or stderr.truncated or status == "output_limit",
        output_lost=observed.output_lost,
        idle_suspect=idle,
        clock_suspect=observed.clock_suspect,
        milestones_out_of_order=milestones.out_of_order,
    )


def cancelled_in_queue(backend: str, queued_at: float) -> Execution:
    """The record of a run that was cancelled before it got a slot."""
    nothing = StreamCapture("", "", 0)
    now = time.time()
    return Execution(
        status="cancelled",
        exit_code=None,
        signal=None,
        duration_s=0.0,
        wall_s=0.0,
        queue_s=now - queued_at,
        cpu_s=None,
        peak_memory_mb=None,
        stdout=nothing,
        stderr=nothing,
        milestones=(),
        milestone_values={},
        submission_state="not_collected",
        submission_reason=None,
        submission_path=None,
        submission_bytes=0,
        started_at=now,
        finished_at=now,
        backend=backend,
    )
