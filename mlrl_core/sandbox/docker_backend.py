"""The docker backend: one fresh container per program, nothing reused, nothing private mounted."""

from __future__ import annotations

import atexit
import datetime
import json
import os
import queue
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
from mlrl_core.sandbox import docker_places as places
from mlrl_core.sandbox import programs, verdict
from mlrl_core.sandbox.collector import NOT_COLLECTED
from mlrl_core.sandbox.containers import Container, Ended
from mlrl_core.sandbox.engine import connect, engine_info, find_image
from mlrl_core.sandbox.engine_groups import EngineGroups
from mlrl_core.sandbox.gpus import GpuLeases
from mlrl_core.sandbox.host import runtime_dir, slot_count
from mlrl_core.sandbox.image.build import LABEL_PACKAGES
from mlrl_core.sandbox.inputs import InputFolders
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.local import CLOSE_S, cancelled_in_queue
from mlrl_core.sandbox.output import MilestoneFilter, StartLine, StreamKeeper
from mlrl_core.sandbox.owners import host_name, owner_name
from mlrl_core.sandbox.seccomp import filter_bytes
from mlrl_core.sandbox.slots import Cancelled, Slot, acquire_slot

START_LINE_S = 60.0
EXIT_S = 15.0  # from a kill to the exit that it causes
LABEL_DEADLINE_MARGIN_S = 120
_TICK_S = 0.05
# Starting containers side by side only makes each start slower.
_STARTS = threading.BoundedSemaphore(os.cpu_count() or 1)


class DockerSandbox:
    """``image_id`` is what every container of this sandbox is made from."""

    backend = "docker"
    unsafe = False

    def __init__(self, config: SandboxConfig, run_key: str, env: Mapping[str, str], client: Any = None) -> None:
        self.config, self.run_key = config, run_key
        self.models = programs.models_folder(config.models_dir)
        self.extra_env: Mapping[str, str] = {
            **env,
            **({"MLRL_MODELS_DIR": programs.MODELS} if self.models else {}),
        }
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
        self.seccomp = filter_bytes()
        self.launcher = resources.files("mlrl_core.sandbox.image").joinpath("launch.py").read_text()
        self.groups = EngineGroups(self.info)
        self.leases = GpuLeases(self.runtime / "gpus", config.gpus)
        self.description = (
            f"docker {self.info.version}, image {config.image} ({self.image_id.removeprefix('sha256:')[:12]})"
            + (f", runtime {config.runtime}" if config.runtime else "")
        )
        self._running = 0
        self._changed = threading.Condition()
        self.closing = threading.Event()
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
                attempt = _Attempt(self, slot, gpu, milestones, cancel, solution_id)
                result = attempt.run(source, folder, collect_to)
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
        places.remove_folder(self.own)
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

    def settings(
        self, slot: Slot, gpu: str, job: Path, inputs: Path, out: Any, group: str, labels: dict[str, str]
    ) -> dict[str, Any]:
        """The arguments of the create call."""
        import docker

        limits = self.limits
        mount = docker.types.Mount

        def read_only(target: str, source: Path) -> Any:
            return mount(target, str(source), type="bind", read_only=True)

        accounts = [read_only(f"/etc/{name}", job / "etc" / name) for name in ("passwd", "group")]
        host = self.client.api.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],  # the engine's own filter stays on, ours is stacked on it
            pids_limit=limits.pids,
            mem_limit=limits.memory,
            memswap_limit=limits.memory,
            nano_cpus=int(limits.cpus * 1e9) if limits.cpus < len(slot.cpus) else None,
            cpuset_cpus=",".join(map(str, slot.cpus)),
            init=True,
            ipc_mode="private",
            shm_size=limits.shm,
            oom_score_adj=500,
            tmpfs={
                "/tmp": f"rw,nosuid,nodev,noexec,size={limits.tmp},"
                f"nr_inodes={max(limits.tmp >> 20 << 8, 1024)},mode=1777"
            },
            log_config=docker.types.LogConfig(type="none"),
            ulimits=[
                docker.types.Ulimit(name=name, soft=value, hard=value)
                for name, value in (("nofile", limits.nofile), ("core", 0), ("fsize", limits.fsize))
            ],
            restart_policy={"Name": "no"},
            cgroup_parent=group or None,
            runtime=self.config.runtime or None,
            # By UUID, never "all": the other devices train.
            device_requests=[docker.types.DeviceRequest(device_ids=[gpu], capabilities=[["gpu"]])] if gpu else None,
            mounts=[
                read_only(programs.IN, inputs),
                read_only(programs.JOB, job / "job"),
                out,
                read_only(f"{programs.OUT}/input", inputs),
                *accounts,
                *([read_only(programs.MODELS, self.models)] if self.models else ()),
            ],
        )
        driver = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"} if gpu else {}
        python = ("python3", *programs.PYTHON_FLAGS, programs.SOLUTION)
        interpreter = "/usr/bin/python3"
        launcher = ("python3", "-I", "-S", f"{programs.JOB}/launch.py", f"{programs.JOB}/filter.bpf")
        return {
            "image": self.image_id,
            "command": [*programs.watchdog(limits.time_s), *launcher, interpreter, *python[1:]],
            "user": f"{slot.uid}:{slot.uid}",
            "environment": programs.environment("docker", len(slot.cpus), {**driver, **self.extra_env}),
            "working_dir": programs.OUT,
            "stdin_open": False,
            "tty": False,
            "network_disabled": True,
            "labels": labels,
            "host_config": host,
        }


class _Attempt:
    """One program in one container."""

    def __init__(
        self,
        sandbox: DockerSandbox,
        slot: Slot,
        gpu: str,
        milestones: MilestoneFilter,
        cancel: threading.Event | None,
        solution_id: str,
    ) -> None:
        self._sandbox, self._slot, self._gpu = sandbox, slot, gpu
        self._cancel, self._milestones = cancel, milestones
        self._limits = sandbox.limits
        self._labels = sandbox.labels(solution_id)
        self._id = uuid.uuid4().hex
        self._folder = sandbox.own / self._id
        self._verdict = verdict.Verdict()
        self._lock = threading.Lock()
        self._start = StartLine()
        self._stdout, self._stderr = StreamKeeper(self._limits.keep), StreamKeeper(self._limits.keep)
        self._printed = 0
        self._began = time.monotonic()
        self._t0: float | None = None
        self._started_at = 0.0
        self._killed_at: float | None = None
        self._container = Container(sandbox.client, f"mlrl-{self._id}", self._on_output)

    def run(self, source: str, inputs: Path, collect_to: Path) -> Execution:
        sandbox = self._sandbox
        self._folder.mkdir(mode=0o755)
        accounts = programs.account_files([self._slot.uid])
        places.job_folder(self._folder, source, sandbox.launcher, sandbox.seccomp, accounts)
        out: places.OutputPlace | None = None
        group = sandbox.groups.parent(self._id)
        try:
            out = self._output_place()
            with _STARTS:
                self._container.create(
                    **sandbox.settings(self._slot, self._gpu, self._folder, inputs, out.mount(), group, self._labels)
                )
                self._container.start()
                self._wait_for_start()
            ended = self._watch()
            self._container.drain()
            state = self._container.inspect()
            self._judge_start(state)
            counters = sandbox.groups.counters(self._id)
            submission = NOT_COLLECTED
            if self._verdict.kill_reason != "cancelled":
                submission = out.collect(collect_to, self._limits.submission)
        finally:
            self._clean_up(out)
        t0 = self._t0
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
            started_at=self._started_at or now,
            finished_at=self._started_at + duration if self._started_at else now,
            output_lost=self._container.output_lost,
            clock_suspect=t0 is not None and _clocks_disagree(state, ended - t0),
        )
        return verdict.execution(
            observed,
            self._verdict,
            self._limits.time_s,
            self._stdout,
            self._stderr,
            self._milestones,
            submission,
            sandbox.backend,
        )

    def _output_place(self) -> places.OutputPlace:
        sandbox = self._sandbox
        if sandbox.info.local:
            return places.HostTmpfs(self._folder / "out", self._limits, self._slot.uid)
        name = f"mlrl-{self._id}"
        return places.EngineVolume(sandbox.client, sandbox.image_id, name, self._limits, self._slot.uid, self._labels)

    def _clean_up(self, out: places.OutputPlace | None) -> None:
        """Container, output, groups, folder: in this order, each whatever became of the others."""
        problems: list[str] = []
        for step in (
            self._container.remove,
            out.remove if out else lambda: None,
            lambda: self._sandbox.groups.remove(self._id),
        ):
            try:
                step()
            except InfraError as error:
                problems.append(str(error))
        places.remove_folder(self._folder)
        if problems:
            raise InfraError("; ".join(problems))

    # --- output, in the reader's thread ---------------------------------------------------------------------------

    def _on_output(self, is_stdout: bool, data: bytes) -> None:
        with self._lock:
            self._printed += len(data)
            if not is_stdout:
                self._stderr.feed(data)
            else:
                begun = self._start.seen
                data = self._start.feed(data)
                if self._start.seen and not begun:
                    self._started_at, self._t0 = time.time(), time.monotonic()
                    self._printed = len(data)
                self._stdout.feed(self._milestones.feed(data) if self._start.seen else data)
            too_much = self._printed > self._limits.output
        if too_much and self._verdict.decide("output_limit"):
            self._killed_at = time.monotonic()
            threading.Thread(target=self._container.kill, daemon=True).start()

    # --- deadlines, in the caller's thread ------------------------------------------------------------------------

    def _wait_for_start(self) -> None:
        """Returns when the start line has come, the container has ended, or somebody cancelled."""
        end = time.monotonic() + START_LINE_S
        while self._t0 is None and not self._start.failed and self._container.events.empty():
            if self._sandbox.closing.is_set() or (self._cancel is not None and self._cancel.is_set()):
                return
            if time.monotonic() > end:
                raise InfraError(f"the program did not start within {START_LINE_S:g} s")
            time.sleep(0.001)

    def _watch(self) -> float:
        """Keep the deadlines until the program has ended; returns when, on the monotonic clock."""
        lost: InfraError | None = None
        while True:
            try:
                event = self._container.events.get(timeout=self._next_wait())
            except queue.Empty:
                event = None
            if isinstance(event, Ended):
                self._verdict.decide("exited")
                return event.at
            lost = event or lost
            if self._sandbox.closing.is_set():
                raise InfraError("the sandbox was closed during a run")
            now = time.monotonic()
            if self._killed_at is not None:
                if now > self._killed_at + EXIT_S:
                    raise lost or InfraError(f"the container did not end within {EXIT_S:g} s of its kill")
            elif self._cancel is not None and self._cancel.is_set():
                self._kill("cancelled")
            elif self._t0 is not None and now >= self._t0 + self._limits.time_s:
                self._kill("timeout")
            elif self._t0 is None and now > self._began + START_LINE_S:
                raise lost or InfraError(f"the program did not start within {START_LINE_S:g} s")

    def _next_wait(self) -> float:
        if self._t0 is None or self._killed_at is not None:
            return _TICK_S
        return min(_TICK_S, max(0.001, self._t0 + self._limits.time_s - time.monotonic()))

    def _kill(self, reason: verdict.KillReason) -> None:
        if self._verdict.decide(reason):
            self._killed_at = time.monotonic()
            self._container.kill()

    def _judge_start(self, state: dict[str, Any]) -> None:
        """Raises InfraError when the engine reports a failure of its own or the program never ran."""
        self._stdout.feed(self._milestones.finish())
        if state.get("Error"):
            raise InfraError(f"docker: {state['Error']}")
        if not self._start.seen and self._verdict.kill_reason != "cancelled":
            words = (self._stderr.capture().tail or self._stdout.capture().tail).strip().splitlines()
            raise InfraError("the program never started" + (f": {words[-1][:300]}" if words else ""))


def _clocks_disagree(state: dict[str, Any], measured_s: float) -> bool:
    """Our duration against the engine's wall clock: more than max(0.5 s, 2 %) apart."""
    try:
        started, finished = (datetime.datetime.fromisoformat(state[name]) for name in ("StartedAt", "FinishedAt"))
    except (KeyError, ValueError):
        return False
    engine_s = (finished - started).total_seconds()
    return abs(engine_s - measured_s) > max(0.5, 0.02 * measured_s)
