"""What a profile wants of the machine's GPUs, cores and memory, and what would fit instead."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlrl_core.errors import MlrlError
from mlrl_core.sizing import needs_of, shape_of

if TYPE_CHECKING:
    from mlrl_core.config import RunConfig

_QUERY_S = 20.0
_MEMORY_SHARE = 0.9  # of the machine's memory that execution slots may fill


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA device: its number, name and memory in MiB."""

    index: int
    name: str
    memory_mib: int


def find_gpus() -> list[Gpu]:
    """The NVIDIA devices of this machine; none where there is no driver, or it does not answer."""
    command = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return read_gpus(done.stdout) if done.returncode == 0 else []


def read_gpus(text: str) -> list[Gpu]:
    """The devices in the driver's list, one ``index, name, MiB`` a line; lines of another form are no device."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0].isdigit() and parts[2].isdigit():
            found.append(Gpu(int(parts[0]), parts[1], int(parts[2])))
    return found


def check_gpus(config: RunConfig, gpus: list[Gpu]) -> str:
    """What the run uses, in words. Raises MlrlError for a device that is missing, wanted twice or too small."""
    learner, servers = learner_devices(config), server_devices(config)
    both = sorted(set(learner) & set(servers))
    if both:
        raise MlrlError(
            f"cuda:{both[0]} is the learner's (learner.ranks = {config.learner.ranks} takes the first visible ones) "
            f"and a server's: {propose_split(len(gpus))}"
        )
    wanted = {*learner, *servers}
    if not wanted:
        return f"none wanted, {len(gpus)} found"
    missing = sorted(wanted - {gpu.index for gpu in gpus})
    if missing:
        raise MlrlError(
            f"{len(wanted)} wanted ({len(learner)} learner, {len(servers)} servers), {len(gpus)} found: "
            f"{propose_split(len(gpus))}"
        )
    _check_memory(config, gpus)
    names = ", ".join(sorted({f"{gpu.name} {gpu.memory_mib / 1024:.0f} GB" for gpu in gpus}))
    return f"{len(gpus)} x {names}: {len(learner)} for the learner, {len(servers)} for servers"


def _check_memory(config: RunConfig, gpus: list[Gpu]) -> None:
    shape = shape_of(config)
    if shape is None:
        return
    needs = needs_of(config, shape)
    wanted = dict.fromkeys(server_devices(config), ("a server", needs.server))
    wanted |= dict.fromkeys(learner_devices(config), ("the learner", needs.learner))
    for gpu in gpus:
        user, gib = wanted.get(gpu.index, ("", 0.0))
        if gib > gpu.memory_mib / 1024:
            raise MlrlError(
                f"cuda:{gpu.index} ({gpu.name}) has {gpu.memory_mib / 1024:.0f} GB, {user} needs about {gib:.0f}: "
                "take a smaller model, more learner.ranks or a smaller ppo.micro_batch_tokens"
            )


def learner_devices(config: RunConfig) -> list[int]:
    """Numbers of the devices that the learner's processes take: the first that ``CUDA_VISIBLE_DEVICES`` shows, one
    each. Servers are placed by the machine's own numbers, whatever it says."""
    if config.learner.device != "cuda":
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not re.fullmatch(r"\d+(,\d+)*", visible):  # unset, or names that say nothing of numbers
        return list(range(config.learner.ranks))
    numbers = [int(each) for each in visible.split(",")]
    if len(numbers) < config.learner.ranks:
        raise MlrlError(
            f"learner.ranks = {config.learner.ranks}, but CUDA_VISIBLE_DEVICES = {visible} shows {len(numbers)} GPUs: "
            "set one or the other"
        )
    return numbers[: config.learner.ranks]


def server_devices(config: RunConfig) -> list[int]:
    """Numbers of the devices that servers of this run are started on."""
    if config.generation.backend != "vllm":
        return []
    return [int(each.removeprefix("cuda:")) for each in config.generation.servers if each.startswith("cuda:")]


def propose_split(count: int) -> str:
    """Settings for ``count`` GPUs, in words: half for the learner, the rest for servers."""
    if count == 0:
        return "without a GPU train a small model on the CPU, --profile smollm2"
    if count == 1:
        return (
            "with one GPU let a server have it and the CPU learn: "
            'generation.servers=["cuda:0"] learner.device=cpu learner.ranks=1'
        )
    ranks = count // 2
    servers = ", ".join(f'"cuda:{number}"' for number in range(ranks, count))
    return f"with {count} GPUs set learner.ranks={ranks} generation.servers=[{servers}]"


def propose_slots(config: RunConfig, cores: int, memory_mb: float) -> int:
    """Executions that fit at once: a core per learner process and server stays free, and a tenth of the memory. At
    least 1."""
    busy = (config.learner.ranks if config.learner.device == "cuda" else 0) + len(server_devices(config))
    by_cores = int((cores - busy) / config.sandbox.cpus)
    by_memory = int(memory_mb * _MEMORY_SHARE / config.sandbox.memory_mb)
    return max(1, min(by_cores, by_memory))
