"""The docker backend: one fresh container per program, nothing reused, nothing private mounted."""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.records import Execution
from mlrl_core.sandbox import programs
from mlrl_core.sandbox.docker_run import Bench, DockerRun
from mlrl_core.sandbox.docker_settings import ContainerSettings
from mlrl_core.sandbox.engine import connect, engine_info, find_image
from mlrl_core.sandbox.engine_groups import EngineGroups
from mlrl_core.sandbox.gpus import GpuLeases
from mlrl_core.sandbox.helper.trees import remove_tree
from mlrl_core.sandbox.host import host_errors, runtime_dir, slot_count
from mlrl_core.sandbox.image.build import LABEL_PACKAGES
from mlrl_core.sandbox.inputs import InputFolders
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.local import CLOSE_S
from mlrl_core.sandbox.output import MilestoneFilter
from mlrl_core.sandbox.owners import host_name, owner_name
from mlrl_core.sandbox.seccomp import filter_bytes
from mlrl_core.sandbox.slots import Cancelled, acquire_slot
from mlrl_core.sandbox.verdict import cancelled_in_queue

LABEL_DEADLINE_MARGIN_S = 120


class DockerSandbox:
    """``image_id`` is what every container of this sandbox is made from."""

    backend = "docker"
    unsafe = False

    def __init__(self, config: SandboxConfig, run_key: str, env: Mapping[str, str], client: Any = None) -> None:
        self.config, self.run_key = config, run_key
        models = programs.models_folder(config.models_dir)
        self.extra_env: Mapping[str, str] = {**env, **({"MLRL_MODELS_DIR": programs.MODELS} if models else {})}
        self.limits = Limits.of(config)
        self.slots = slot_count(config.slots, config.cpus, self.limits.memory)
        self.client = client or connect(config.engine_url, self.slots)
        self.info = engine_info(self.client)
        self.image_id, self.image_labels = find_image(self.client, config.image)
        if config.runtime and config.runtime not in self.info.runtimes:
            raise MlrlError(
                f"the engine has no runtime '{config.runtime}' (it has {', '.join(self.info.runtimes)}): "
                "install it or set sandbox.runtime to one of these"
            )
        self.runtime = runtime_dir()
        self.own = self.runtime / "instances" / f"{owner_name()}-{uuid.uuid4().hex[:8]}"
        self.own.mkdir(parents=True, mode=0o711)
        self.own.parent.chmod(0o711)
        self._inputs = InputFolders(self.own / "inputs", foreign_user=True)
        self.closing = threading.Event()
        self._bench = Bench(
            client=self.client,
            settings=ContainerSettings(
                self.client.api, self.image_id, self.limits, config.runtime, models, self.extra_env
            ),
            groups=EngineGroups(self.info),
            folder=self.own,
            local=self.info.local,
            launcher=resources.files("mlrl_core.sandbox.image").joinpath("launch.py").read_text(),
            seccomp=filter_bytes(),
            closing=self.closing,
        )
        self.leases = GpuLeases(self.runtime / "gpus", config.gpus)
        self.description = (
            f"docker {self.info.version}, image {config.image} ({self.image_id.removeprefix('sha256:')[:12]})"
            + (f", runtime {config.runtime}" if config.runtime else "")
        )
        self._running = 0
        self._changed = threading.Condition()
        self._worker = os.getpid()
        atexit.register(self.close)

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
        with self._changed:
            if self.closing.is_set():
                raise InfraError("the sandbox is closed")
            self._running += 1
        try:
            with host_errors():
                return self._run(source, inputs, collect_to, MilestoneFilter(nonce, milestones), cancel, solution_id)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _run(
        self,
        source: str,
        inputs: Path,
        collect_to: Path,
        milestones: MilestoneFilter,
        cancel: threading.Event | None,
        solution_id: str,
    ) -> Execution:
        folder, mark = self._inputs.prepare(inputs)
        queued = time.time()
        config = self.config
        try:
            with (
                acquire_slot(self.runtime / "slots", self.slots, config.cpus, config.slot_wait_s, cancel) as slot,
                self.leases.lease(config.slot_wait_s, cancel) if config.gpus else nullcontext("") as gpu,
            ):
                run = DockerRun(self._bench, slot, gpu, milestones, cancel, self.labels(solution_id))
                result = run.run(source, folder, collect_to)
        except Cancelled:
            return cancelled_in_queue(self.backend, queued)
        self._inputs.check_unchanged(folder, mark)
        return result

    def packages(self) -> dict[str, str]:
        """See ``Sandbox.packages``: the list that the image was built with."""
        return dict(json.loads(self.image_labels.get(LABEL_PACKAGES, "{}")))

    def close(self) -> None:
        """End the programs (their runs raise InfraError) and remove what is left of this sandbox."""
        if self.closing.is_set() or os.getpid() != self._worker:
            return  # the second: a forked child of the worker, nothing here is its own
        self.closing.set()
        atexit.unregister(self.close)
        with self._changed:
            self._changed.wait_for(lambda: not self._running, CLOSE_S)
        remove_tree(str(self.own))
        self.leases.close()
        self.client.close()

    def labels(self, solution_id: str) -> dict[str, str]:
        """What the sweeper needs to know about an object of ours."""
        return {
            "mlrl.instance": host_name(),
            "mlrl.owner": owner_name(),
            "mlrl.run": self.run_key,
            "mlrl.solution": solution_id,
            "mlrl.deadline": str(int(time.time() + self.limits.time_s + LABEL_DEADLINE_MARGIN_S)),
        }
