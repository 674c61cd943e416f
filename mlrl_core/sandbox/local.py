"""Runs programs on this host through helpers: what the bubblewrap and the process backend share."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import selectors
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.records import Execution, StreamCapture
from mlrl_core.sandbox import verdict as verdicts
from mlrl_core.sandbox.collector import NOT_COLLECTED, collect
from mlrl_core.sandbox.helper_process import HelperProcess, Setup
from mlrl_core.sandbox.host import slot_count
from mlrl_core.sandbox.image.build import package_list
from mlrl_core.sandbox.inputs import InputFolders
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.output import MilestoneFilter, StartLine, StreamKeeper
from mlrl_core.sandbox.owners import owner_name
from mlrl_core.sandbox.slots import Cancelled, Slot, acquire_slot

START_LINE_S = 60.0  # a program that has not started by then never will
_EXIT_S = 15.0  # from a kill to the exit that it causes
CLOSE_S = 12.0  # for runs in progress to end when the sandbox is closed
_TICK_S = 0.05  # how often the cancel event is looked at
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Launch:
    """How a backend starts a program in a slot: the command, its environment, bwrap's arguments."""

    argv: list[str]
    env: dict[str, str]
    bwrap: list[str]
    workdir: str
    uid: int | None


class LocalSandbox:
    """Base of the backends on this host; a backend says how a program is launched (``launch``)."""

    backend = ""
    unsafe = False
    description = ""
    extra_env: Mapping[str, str]

    def __init__(self, config: SandboxConfig, runtime: Path, setup: Setup, foreign_user: bool) -> None:
        if config.gpus:
            raise MlrlError(f"{self.backend} can't lease GPUs: set sandbox.backend=docker or leave sandbox.gpus empty")
        self.config, self.runtime = config, runtime
        self.limits = Limits.of(config)
        self.slots = slot_count(config.slots, config.cpus, self.limits.memory)
        self._setup = setup
        self._own = runtime / "instances" / f"{owner_name()}-{uuid.uuid4().hex[:8]}"
        self._own.mkdir(parents=True, mode=0o711)
        self._own.parent.chmod(0o711)
        self._inputs = InputFolders(self._own / "inputs", foreign_user)
        self._lock = threading.Lock()
        self._idle_again = threading.Condition(self._lock)
        self._idle: list[HelperProcess] = []
        self._busy: set[HelperProcess] = set()
        self._closed = False
        self._worker = os.getpid()
        atexit.register(self.close)

    def launch(self, slot: Slot, run_id: str) -> Launch:
        raise NotImplementedError

    def run(
        self,
        source: str,
        inputs: Path,
        *,
        collect_to: Path,
        nonce: str = "",
        milestones: Sequence[str] = (),
        cancel: threading.Event | None = None,
        solution_id: str = "",
    ) -> Execution:
        """See ``Sandbox.run``."""
        folder, mark = self._inputs.prepare(inputs)
        queued = time.time()
        try:
            with (
                acquire_slot(
                    self.runtime / "slots", self.slots, self.config.cpus, self.config.slot_wait_s, cancel
                ) as slot,
                self._helper() as helper,
            ):
                attempt = _Attempt(self, helper, slot, MilestoneFilter(nonce, milestones), cancel)
                result = attempt.run(source, folder, collect_to)
        except Cancelled:
            return cancelled_in_queue(self.backend, queued)
        self._inputs.check_unchanged(folder, mark)
        return result

    @contextmanager
    def _helper(self) -> Iterator[HelperProcess]:
        """A helper of our own for one run; one that failed is ended, with all that it started."""
        with self._lock:
            if self._closed:
                raise InfraError("the sandbox is closed")
            helper = self._idle.pop() if self._idle else None
        helper = helper or HelperProcess(self._setup)
        with self._lock:
            self._busy.add(helper)
        try:
            yield helper
        except BaseException:
            helper.close()
            self._done_with(helper)
            raise
        if not self._done_with(helper, keep=True):
            helper.close()

    def _done_with(self, helper: HelperProcess, keep: bool = False) -> bool:
        """The run is over; True when the helper was put back for the next one."""
        with self._idle_again:
            self._busy.discard(helper)
            kept = keep and not self._closed
            if kept:
                self._idle.append(helper)
            self._idle_again.notify_all()
            return kept

    def packages(self) -> dict[str, str]:
        """See ``Sandbox.packages``: what this environment has of what the image would have."""
        found = {"python": platform.python_version()}
        for name in package_list("full")[1]:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        return found

    def close(self) -> None:
        """End the helpers and their programs (their runs raise InfraError) and remove this instance's folder."""
        atexit.unregister(self.close)
        if os.getpid() != self._worker:
            return  # a forked child of the worker: nothing here is its own
        with self._idle_again:
            self._closed = True
            idle, self._idle = self._idle, []
            for helper in self._busy:
                helper.abort()
            self._idle_again.wait_for(lambda: not self._busy, CLOSE_S)
        for helper in idle:
            helper.close()
        shutil.rmtree(self._own, ignore_errors=True)


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


class _Attempt:
    """One run in one helper: streams, deadlines, the verdict."""

    def __init__(
        self,
        sandbox: LocalSandbox,
        helper: HelperProcess,
        slot: Slot,
        milestones: MilestoneFilter,
        cancel: threading.Event | None,
    ) -> None:
        self._sandbox, self._helper, self._slot = sandbox, helper, slot
        self._limits, self._cancel, self._milestones = sandbox.limits, cancel, milestones
        self._verdict = verdicts.Verdict()
        self._start = StartLine()
        self._stdout, self._stderr = StreamKeeper(self._limits.keep), StreamKeeper(self._limits.keep)
        self._printed = 0
        self._began = time.monotonic()
        self._t0: float | None = None  # arrival of the start line
        self._started_at = 0.0
        self._killed_at: float | None = None

    def run(self, source: str, inputs: Path, collect_to: Path) -> Execution:
        run_id = uuid.uuid4().hex
        launch = self._sandbox.launch(self._slot, run_id)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        out_fd = -1
        try:
            try:
                with _memory_file(source.encode("utf-8", "surrogatepass")) as source_fd:
                    self._helper.send(
                        "run",
                        (out_write, err_write, source_fd),
                        argv=launch.argv,
                        env=launch.env,
                        bwrap=launch.bwrap,
                        inputs=str(inputs),
                        workdir=launch.workdir,
                        uid=launch.uid,
                        cpu_list=list(self._slot.cpus),
                        limits=self._limits.for_helper(),
                        deadline_s=START_LINE_S + self._limits.time_s + 30,
                    )
            finally:
                os.close(out_write)
                os.close(err_write)
            _, (out_fd,) = self._helper.expect("spawned")
            report = self._watch(out_read, err_read)
            if not self._start.seen and self._verdict.kill_reason != "cancelled":
                raise InfraError(f"the program never started{self._why_not()}")
            submission = NOT_COLLECTED
            if self._verdict.kill_reason != "cancelled":
                submission = collect(out_fd, collect_to, self._limits.submission)
        finally:
            for fd in (out_read, err_read, *((out_fd,) if out_fd >= 0 else ())):
                os.close(fd)
        self._helper.send("release")
        left = self._helper.expect("released")[0]["leftovers"]
        if left:
            raise InfraError(f"the sandbox could not clean up: {', '.join(left)}")
        return self._result(report, submission)

    def _watch(self, out_read: int, err_read: int) -> dict[str, Any]:
        """Feed the streams and keep the deadlines until the program has ended and the streams are drained."""
        report: dict[str, Any] | None = None
        drain_until = float("inf")
        with selectors.DefaultSelector() as selector:
            for fd in (out_read, err_read):
                os.set_blocking(fd, False)
                selector.register(fd, selectors.EVENT_READ)
            selector.register(self._helper.socket, selectors.EVENT_READ)
            while report is None or len(selector.get_map()) > 0:
                for key, _ in selector.select(self._next_wait()):
                    if key.fileobj is self._helper.socket:
                        report, _ = self._helper.receive()
                        self._verdict.decide("exited")
                        selector.unregister(self._helper.socket)
                        drain_until = time.monotonic() + 5
                    elif not self._read(int(key.fd), out_read):
                        selector.unregister(key.fd)
                if report is None:
                    self._check_deadlines()
                elif time.monotonic() > drain_until:
                    raise InfraError("an output stream stayed open after the program's end")
        self._stdout.feed(self._milestones.finish())
        return report

    def _read(self, fd: int, out_read: int) -> bool:
        """One chunk; False at the end of the stream."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._printed += len(data)
        if fd == out_read:
            begun = self._start.seen
            data = self._start.feed(data)
            if self._start.seen and not begun:
                self._t0, self._started_at = time.monotonic(), time.time()
                self._printed = len(data)
            if self._start.seen:
                data = self._milestones.feed(data)
            self._stdout.feed(data)
        else:
            self._stderr.feed(data)
        if self._printed > self._limits.output:
            self._kill("output_limit")
        return True

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self._killed_at is not None:
            if now > self._killed_at + _EXIT_S:
                raise InfraError(f"the program did not die within {_EXIT_S:g} s of its kill")
        elif self._cancel is not None and self._cancel.is_set():
            self._kill("cancelled")
        elif self._t0 is None:
            if self._start.failed or now > self._began + START_LINE_S:
                raise InfraError(f"the program never started{self._why_not()}")
        elif now >= self._t0 + self._limits.time_s:
            self._kill("timeout")

    def _next_wait(self) -> float:
        if self._t0 is None or self._killed_at is not None:
            return _TICK_S
        return min(_TICK_S, max(0.0, self._t0 + self._limits.time_s - time.monotonic()))

    def _kill(self, reason: verdicts.KillReason) -> None:
        if self._killed_at is None and self._verdict.decide(reason):
            self._killed_at = time.monotonic()
            self._helper.send("kill")

    def _why_not(self) -> str:
        text = (self._stderr.capture().tail or self._stdout.capture().tail).strip()
        return f": {text.splitlines()[-1][:300]}" if text else ""

    def _result(self, report: dict[str, Any], submission: Any) -> Execution:
        ended = float(report["at"])
        duration = max(0.0, ended - self._t0) if self._t0 is not None else 0.0
        now = time.time()
        observed = verdicts.Observed(
            exit_code=report["code"],
            oom_seen=report["oom"],
            duration_s=duration,
            wall_s=time.monotonic() - self._began,
            queue_s=self._slot.queue_s,
            cpu_s=report["cpu_s"],
            peak_bytes=report["peak"],
            started_at=self._started_at or now,
            finished_at=(self._started_at + duration) if self._started_at else now,
        )
        return verdicts.execution(
            observed,
            self._verdict,
            self._limits.time_s,
            self._stdout,
            self._stderr,
            self._milestones,
            submission,
            self._sandbox.backend,
        )


@contextlib.contextmanager
def _memory_file(data: bytes) -> Iterator[int]:
    fd = os.memfd_create("mlrl-source", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)
