"""One program in one helper: streams, deadlines, the verdict."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrl_core.errors import InfraError
from mlrl_core.records import Execution
from mlrl_core.sandbox import capture as captures
from mlrl_core.sandbox import verdict as verdicts
from mlrl_core.sandbox.collector import NOT_COLLECTED, Submission, collect
from mlrl_core.sandbox.helper_process import HelperProcess
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.output import MilestoneFilter
from mlrl_core.sandbox.slots import Slot

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Launch:
    """How a backend starts a program in a slot: the command, its environment, bwrap's arguments."""

    argv: list[str]
    env: dict[str, str]
    bwrap: list[str]
    workdir: str
    uid: int | None


class LocalRun:
    """``run`` once. The helper is left ready for its next program unless an exception passes."""

    def __init__(
        self,
        backend: str,
        limits: Limits,
        helper: HelperProcess,
        slot: Slot,
        milestones: MilestoneFilter,
        cancel: threading.Event | None,
    ) -> None:
        self.id = uuid.uuid4().hex
        self._backend, self._helper, self._slot = backend, helper, slot
        self._limits, self._cancel = limits, cancel
        self._verdict = verdicts.Verdict()
        self._capture = captures.Capture(limits, milestones)
        self._began = time.monotonic()
        self._killed_at: float | None = None

    def run(self, launch: Launch, source: str, inputs: Path, collect_to: Path) -> Execution:
        """See ``Sandbox.run``."""
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
                        deadline_s=captures.START_LINE_S + self._limits.time_s + 30,
                    )
            finally:
                os.close(out_write)
                os.close(err_write)
            _, (out_fd,) = self._helper.expect("spawned")
            report = self._watch(out_read, err_read)
            if self._capture.t0 is None and self._verdict.kill_reason != "cancelled":
                raise InfraError(f"the program never started{self._capture.last_words()}")
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
        """Feed the streams and keep the deadlines until the program has ended."""
        report: dict[str, Any] | None = None
        with selectors.DefaultSelector() as selector:
            for fd in (out_read, err_read):
                os.set_blocking(fd, False)
                selector.register(fd, selectors.EVENT_READ)
            selector.register(self._helper.socket, selectors.EVENT_READ)
            while report is None:
                wait = self._capture.next_wait(self._limits.time_s, self._killed_at is not None)
                for key, _ in selector.select(wait):
                    if key.fileobj is self._helper.socket:
                        report, _ = self._helper.receive()
                        self._verdict.decide("exited")
                    elif self._read(int(key.fd), out_read) == 0:
                        selector.unregister(key.fd)
                if report is None:
                    self._check_deadlines()
        # Whoever could write is dead, so that what is there is all there is. Not until the streams' ends: a program
        # can hide its copies in the buffers of sockets that only the kernel's garbage collector will close.
        for fd in (out_read, err_read):
            while self._read(fd, out_read):
                pass
        self._capture.finish()
        return report

    def _read(self, fd: int, out_read: int) -> int | None:
        """The length of one chunk, 0 at the end of the stream, None when nothing is there."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return None
        if data and not self._capture.feed(fd == out_read, data):
            self._kill("output_limit")
        return len(data)

    def _check_deadlines(self) -> None:
        now, t0 = time.monotonic(), self._capture.t0
        if self._killed_at is not None:
            if now > self._killed_at + captures.EXIT_S:
                raise InfraError(f"the program did not die within {captures.EXIT_S:g} s of its kill")
        elif self._cancel is not None and self._cancel.is_set():
            self._kill("cancelled")
        elif t0 is None:
            if self._capture.never_started or now > self._began + captures.START_LINE_S:
                raise InfraError(f"the program never started{self._capture.last_words()}")
        elif now >= t0 + self._limits.time_s:
            self._kill("timeout")

    def _kill(self, reason: verdicts.KillReason) -> None:
        if self._killed_at is None and self._verdict.decide(reason):
            self._killed_at = time.monotonic()
            self._helper.send("kill")

    def _result(self, report: dict[str, Any], submission: Submission) -> Execution:
        ended, t0 = float(report["at"]), self._capture.t0
        duration = max(0.0, ended - t0) if t0 is not None else 0.0
        started_at = self._capture.started_at
        now = time.time()
        observed = verdicts.Observed(
            exit_code=report["code"],
            oom_seen=report["oom"],
            duration_s=duration,
            wall_s=time.monotonic() - self._began,
            queue_s=self._slot.queue_s,
            cpu_s=report["cpu_s"],
            peak_bytes=report["peak"],
            started_at=started_at or now,
            finished_at=started_at + duration if started_at else now,
        )
        return verdicts.execution(
            observed, self._verdict, self._limits.time_s, self._capture, submission, self._backend
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
