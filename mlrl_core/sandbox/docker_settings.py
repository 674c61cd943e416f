"""How a container is made: every defence that the engine offers, in the arguments of one create call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrl_core.sandbox import programs
from mlrl_core.sandbox.limits import MIB, Limits
from mlrl_core.sandbox.slots import Slot


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """``api``: the SDK's low-level client. ``models``: a folder of this host, None = none."""

    api: Any
    image_id: str
    limits: Limits
    runtime: str
    models: Path | None
    extra_env: Mapping[str, str]

    def of(
        self, slot: Slot, gpu: str, job: Path, inputs: Path, out: Any, group: str, labels: dict[str, str]
    ) -> dict[str, Any]:
        """The arguments of the create call but the name. ``out``: the mount of the output folder. ``group``: the
        parent control group, empty = the engine's own. ``gpu``: a leased device's UUID, empty = none."""
        driver = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"} if gpu else {}
        launcher = ("python3", "-I", "-S", f"{programs.JOB}/launch.py", f"{programs.JOB}/filter.bpf")
        watchdog_s = f"{self.limits.time_s + programs.WATCHDOG_MARGIN_S:g}"
        python = ("/usr/bin/python3", *programs.PYTHON_FLAGS, programs.SOLUTION)
        return {
            "image": self.image_id,
            "command": [*launcher, watchdog_s, *python],
            "user": f"{slot.uid}:{slot.uid}",
            "environment": programs.environment("docker", len(slot.cpus), {**driver, **self.extra_env}),
            "working_dir": programs.OUT,
            "stdin_open": False,
            "tty": False,
            "network_disabled": True,
            "labels": labels,
            "host_config": self._host(slot, gpu, self._mounts(job, inputs, out), group),
        }

    def _mounts(self, job: Path, inputs: Path, out: Any) -> list[Any]:
        import docker

        def read_only(target: str, source: Path) -> Any:
            return docker.types.Mount(target, str(source), type="bind", read_only=True)

        return [
            read_only(programs.IN, inputs),
            read_only(programs.JOB, job / "job"),
            out,
            read_only(f"{programs.OUT}/input", inputs),
            *(read_only(f"/etc/{name}", job / "etc" / name) for name in ("passwd", "group")),
            *([read_only(programs.MODELS, self.models)] if self.models else ()),
        ]

    def _host(self, slot: Slot, gpu: str, mounts: list[Any], group: str) -> Any:
        import docker

        limits = self.limits
        return self.api.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],  # the engine's own filter stays on, ours is stacked on it
            pids_limit=limits.pids,
            mem_limit=limits.memory,
            memswap_limit=limits.memory,
            nano_cpus=int(limits.cpus * 1e9) if limits.cpus < len(slot.cpus) else None,
            cpuset_cpus=",".join(map(str, slot.cpus)),
            init=False,  # the launcher is pid 1: the engine's init would run without our filter
            ipc_mode="none",  # private, without the engine's /dev/shm: that one has no limit of names
            oom_score_adj=500,
            tmpfs={"/tmp": _tmpfs(limits.tmp), "/dev/shm": _tmpfs(limits.shm)},
            log_config=docker.types.LogConfig(type="none"),
            ulimits=[
                docker.types.Ulimit(name=name, soft=value, hard=value)
                for name, value in (("nofile", limits.nofile), ("core", 0), ("fsize", limits.fsize))
            ],
            restart_policy={"Name": "no"},
            cgroup_parent=group or None,
            runtime=self.runtime or None,
            # By UUID, never "all": the other devices train.
            device_requests=[docker.types.DeviceRequest(device_ids=[gpu], capabilities=[["gpu"]])] if gpu else None,
            mounts=mounts,
        )


def _tmpfs(size: int) -> str:
    """Options of a folder that everybody may write to: ``size`` bytes, 256 names per MiB as under bubblewrap."""
    return f"rw,nosuid,nodev,noexec,size={size},nr_inodes={max(size // MIB * 256, 1024)},mode=1777"
