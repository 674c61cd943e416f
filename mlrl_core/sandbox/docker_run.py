"""One program in one container: places, output, deadlines, the verdict, and everything gone afterwards."""

from __future__ import annotations

import datetime
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrl_core.errors import InfraError
from mlrl_core.records import Execution
from mlrl_core.sandbox import capture as captures
from mlrl_core.sandbox import docker_places as places
from mlrl_core.sandbox import programs, verdict
from mlrl_core.sandbox.collector import NOT_COLLECTED, Submission
from mlrl_core.sandbox.containers import Container, Ended
from mlrl_core.sandbox.docker_settings import ContainerSettings
from mlrl_core.sandbox.engine_groups import EngineGroups, RunGroup
from mlrl_core.sandbox.helper.cgroups import Counters
from mlrl_core.sandbox.helper.trees import remove_tree
from mlrl_core.sandbox.host import usable_cpus
from mlrl_core.sandbox.output import MilestoneFilter
from mlrl_core.sandbox.slots import Slot

# Starting containers side by side only makes each start slower.
_STARTS = threading.BoundedSemaphore(len(usable_cpus()))


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs of a docker sandbox share. ``folder``: where a run makes its own. ``closing``: set at the end."""

    client: Any
    settings: ContainerSettings
    groups: EngineGroups
    folder: Path
    local: bool  # output folders are mounts of this host, not volumes of the engine
    launcher: str
    seccomp: bytes
    closing: threading.Event


class DockerRun:
    """``run`` once, from any thread."""

    def __init__(
        self,
        bench: Bench,
        slot: Slot,
        gpu: str,
        milestones: MilestoneFilter,
        cancel: threading.Event | None,
        labels: dict[str, str],
    ) -> None:
        self._bench, self._slot, self._gpu = bench, slot, gpu
        self._cancel, self._labels = cancel, labels
        self._limits = bench.settings.limits
        self._id = uuid.uuid4().hex
        self._folder = bench.folder / self._id
        self._verdict = verdict.Verdict()
        self._capture = captures.Capture(self._limits, milestones)
        self._began = time.monotonic()
        self._killed_at: float | None = None
        self._container = Container(bench.client, f"mlrl-{self._id}", self._on_output)

    def run(self, source: str, inputs: Path, collect_to: Path) -> Execution:
        """See ``Sandbox.run``."""
        bench = self._bench
        out: places.OutputPlace | None = None
        group = bench.groups.of(self._id, self._limits.memory)
        try:
            self._folder.mkdir(mode=0o755)
            accounts = programs.account_files([self._slot.uid])
            places.job_folder(self._folder, source, bench.launcher, bench.seccomp, accounts)
            out = self._output_place()
            settings = bench.settings.of(
                self._slot, self._gpu, self._folder, inputs, out.mount(), group.parent, self._labels
            )
            with _STARTS:
                self._container.create(**settings)
                self._container.start()
                self._wait_for_start()
            ended = self._watch()
            self._container.drain()
            state = self._container.inspect()
            self._judge_start(state)
            counters = group.counters()
            submission = NOT_COLLECTED
            if self._verdict.kill_reason != "cancelled":
                submission = out.collect(collect_to, self._limits.submission)
        finally:
            self._clean_up(out, group)
        return self._result(ended, state, counters, submission)

    def _output_place(self) -> places.OutputPlace:
        if self._bench.local:
            return places.HostTmpfs(self._folder / "out", self._limits, self._slot.uid)
        name, image = f"mlrl-{self._id}", self._bench.settings.image_id
        return places.EngineVolume(self._bench.client, image, name, self._limits, self._slot.uid, self._labels)

    def _clean_up(self, out: places.OutputPlace | None, group: RunGroup) -> None:
        """Container, output, groups, folder: in this order, each whatever became of the others."""
        problems: list[str] = []
        steps: tuple[Callable[[], None], ...] = (
            self._container.remove,
            out.remove if out else lambda: None,
            group.remove,
        )
        for step in steps:
            try:
                step()
            except (InfraError, OSError) as error:
                problems.append(str(error))
        remove_tree(str(self._folder))
        if problems:
            raise InfraError("; ".join(problems))

    # --- output, in the reader's thread ---------------------------------------------------------------------------

    def _on_output(self, is_stdout: bool, data: bytes) -> None:
        if not self._capture.feed(is_stdout, data) and self._verdict.decide("output_limit"):
            self._killed_at = time.monotonic()
            threading.Thread(target=self._container.kill, daemon=True).start()

    # --- deadlines, in the caller's thread ------------------------------------------------------------------------

    def _wait_for_start(self) -> None:
        """Returns when the start line has come, the container has ended, or somebody cancelled."""
        end = time.monotonic() + captures.START_LINE_S
        capture = self._capture
        while capture.t0 is None and not capture.never_started and self._container.events.empty():
            if self._bench.closing.is_set() or (self._cancel is not None and self._cancel.is_set()):
                return
            if time.monotonic() > end:
                raise InfraError(f"the program did not start within {captures.START_LINE_S:g} s")
            time.sleep(0.001)

    def _watch(self) -> float:
        """Keep the deadlines until the program has ended; returns when, on the monotonic clock."""
        lost: InfraError | None = None
        while True:
            try:
                wait = self._capture.next_wait(self._limits.time_s, self._killed_at is not None)
                event = self._container.events.get(timeout=wait)
            except queue.Empty:
                event = None
            if isinstance(event, Ended):
                self._verdict.decide("exited")
                return event.at
            lost = event or lost
            if self._bench.closing.is_set():
                raise InfraError("the sandbox was closed during a run")
            now, t0 = time.monotonic(), self._capture.t0
            if self._killed_at is not None:
                if now > self._killed_at + captures.EXIT_S:
                    raise lost or InfraError(f"the container did not end within {captures.EXIT_S:g} s of its kill")
            elif self._cancel is not None and self._cancel.is_set():
                self._kill("cancelled")
            elif t0 is not None and now >= t0 + self._limits.time_s:
                self._kill("timeout")
            elif t0 is None and now > self._began + captures.START_LINE_S:
                raise lost or InfraError(f"the program did not start within {captures.START_LINE_S:g} s")

    def _kill(self, reason: verdict.KillReason) -> None:
        if self._verdict.decide(reason):
            self._killed_at = time.monotonic()
            self._container.kill()

    # --- the result -----------------------------------------------------------------------------------------------

    def _judge_start(self, state: dict[str, Any]) -> None:
        """Raises InfraError when the engine reports a failure of its own or the program never ran."""
        self._capture.finish()
        if state.get("Error"):
            raise InfraError(f"docker: {state['Error']}")
        if self._capture.t0 is None and self._verdict.kill_reason != "cancelled":
            raise InfraError(f"the program never started{self._capture.last_words()}")

    def _result(self, ended: float, state: dict[str, Any], counters: Counters, submission: Submission) -> Execution:
        t0, started_at = self._capture.t0, self._capture.started_at
        duration = max(0.0, ended - t0) if t0 is not None else 0.0
        now = time.time()
        observed = verdict.Observed(
            exit_code=int(state["ExitCode"]),
            oom_seen=bool(state.get("OOMKilled")) or bool(counters.oom_kills),
            duration_s=duration,
            wall_s=time.monotonic() - self._began,
            queue_s=self._slot.queue_s,
            cpu_s=counters.cpu_seconds,
            peak_bytes=counters.peak_bytes,
            started_at=started_at or now,
            finished_at=started_at + duration if started_at else now,
            output_lost=self._container.output_lost,
            clock_suspect=t0 is not None and _clocks_disagree(state, ended - t0),
        )
        return verdict.execution(observed, self._verdict, self._limits.time_s, self._capture, submission, "docker")


def _clocks_disagree(state: dict[str, Any], measured_s: float) -> bool:
    """Our duration against the engine's wall clock: more than max(0.5 s, 2 %) apart."""
    try:
        started, finished = (datetime.datetime.fromisoformat(state[name]) for name in ("StartedAt", "FinishedAt"))
    except (KeyError, ValueError):
        return False
    engine_s = (finished - started).total_seconds()
    return abs(engine_s - measured_s) > max(0.5, 0.02 * measured_s)
