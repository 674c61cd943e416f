"""A sandbox that runs nothing: it ends every program as that program's ``# expect:`` line says. For tests of what
stands above the sandbox, where no backend is there; the conformance suite runs against it too."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError
from mlrl_core.records import Execution
from mlrl_core.sandbox import verdict
from mlrl_core.sandbox.capture import Capture
from mlrl_core.sandbox.collector import NOT_COLLECTED, Submission, store
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.output import START_LINE, MilestoneFilter
from tests.mlrl_core.sandbox.expectations import promises_of


class FakeSandbox:
    """``# expect:`` keys decide; without such a line a program ends ``ok`` with the submission ``id``. ``prints`` in
    the source (lines ``# print: text``) go through the real parsers. ``fail_next``: raise InfraError that often."""

    backend = "fake"
    unsafe = False
    description = "fake: nothing is run"

    def __init__(self, config: SandboxConfig) -> None:
        self.config, self.limits = config, Limits.of(config)
        self.extra_env: Mapping[str, str] = {}
        self.fail_next = 0
        self.closed = False

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
        if self.closed or self.fail_next > 0:
            self.fail_next -= 1
            raise InfraError("the fake sandbox was told to fail")
        promises = {key: value.split("|")[0] for key, value in promises_of(source).items()}
        status = promises.get("status", "ok")
        decision = verdict.Verdict()
        if cancel is not None and cancel.is_set():
            status = "cancelled"
        if status in ("timeout", "output_limit", "cancelled"):
            decision.decide(status)  # type: ignore[arg-type]
        capture = Capture(self.limits, MilestoneFilter(nonce, milestones))
        printed = [line.removeprefix("# print: ") for line in source.splitlines() if line.startswith("# print: ")]
        if "result" in promises:
            printed.append(f"RESULT: {promises['result']}")
        capture.feed(True, START_LINE + "".join(f"{line}\n" for line in printed).encode())
        capture.finish()
        if promises.get("output_truncated") == "true":
            capture.stdout.feed(b"x" * (2 * self.limits.keep + 1))
        usual = {"ok": "0", "oom": "137", "timeout": "137", "output_limit": "137"}
        low = promises.get("wall", "0").split("..")[0]
        duration = self.limits.time_s if low == "limit" else float(low)
        now = time.time()
        observed = verdict.Observed(
            exit_code=int(promises.get("code", usual.get(status, "1"))),
            oom_seen=status == "oom" or promises.get("oom_seen") == "true",
            duration_s=duration,
            wall_s=duration,
            queue_s=0.0,
            cpu_s=0.0 if promises.get("idle_suspect") == "true" else duration,
            peak_bytes=1 << 20,
            started_at=now,
            finished_at=now + duration,
        )
        submission = self._submission(promises.get("submission", "ok"), status, collect_to)
        return verdict.execution(observed, decision, self.limits.time_s, capture, submission, self.backend)

    @staticmethod
    def _submission(promise: str, status: str, collect_to: Path) -> Submission:
        if status == "cancelled":
            return NOT_COLLECTED
        if promise.startswith("refused:"):
            return Submission("refused", promise.removeprefix("refused:"))
        return Submission("missing") if promise == "missing" else store(b"id\n", collect_to)

    def packages(self) -> dict[str, str]:
        return {"python": "3.11", "numpy": "2.0"}

    def close(self) -> None:
        self.closed = True
