"""Runs programs on this host through helpers: what the bubblewrap and the process backend share."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.records import Execution
from mlrl_core.sandbox.helper.trees import remove_tree
from mlrl_core.sandbox.helper_process import HelperProcess, Setup
from mlrl_core.sandbox.host import host_errors, slot_count
from mlrl_core.sandbox.image.build import package_list
from mlrl_core.sandbox.inputs import InputFolders
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.local_run import Launch, LocalRun
from mlrl_core.sandbox.output import MilestoneFilter
from mlrl_core.sandbox.owners import owner_name
from mlrl_core.sandbox.slots import Cancelled, Slot, acquire_slot
from mlrl_core.sandbox.verdict import cancelled_in_queue

CLOSE_S = 12.0  # for runs in progress to end when the sandbox is closed


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
        with host_errors():
            return self._run(source, inputs, collect_to, MilestoneFilter(nonce, milestones), cancel)

    def _run(
        self, source: str, inputs: Path, collect_to: Path, milestones: MilestoneFilter, cancel: threading.Event | None
    ) -> Execution:
        folder, mark = self._inputs.prepare(inputs)
        queued = time.time()
        config = self.config
        try:
            with (
                acquire_slot(self.runtime / "slots", self.slots, config.cpus, config.slot_wait_s, cancel) as slot,
                self._helper() as helper,
            ):
                run = LocalRun(self.backend, self.limits, helper, slot, milestones, cancel)
                result = run.run(self.launch(slot, run.id), source, folder, collect_to)
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
        remove_tree(str(self._own))
