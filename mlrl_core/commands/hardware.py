"""What a profile wants of the machine's GPUs, cores and memory, and what would fit instead."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlrl_core.errors import MlrlError
from mlrl_core.sizing import needs_of, shape_of

if TYPE_CHECKING:
    from mlrl_core.config import RunConfig

_QUERY_S = 20.0
_MEMORY_SHARE = 0.9  # of the machine's memory that execution slots may fill
_SHARED = 0.4  # of a GPU that a server takes where the learner is on it as well


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA device: its number as this process counts them, name and memory in MiB (0: not known)."""

    index: int
    name: str
    memory_mib: int


def find_gpus() -> list[Gpu]:
    """The NVIDIA devices that this process sees; none where there is no driver, or it does not answer."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return read_gpus(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES")) if done.returncode == 0 else []


def read_gpus(text: str, visible: str | None) -> list[Gpu]:
    """Of the devices in the driver's list, one ``index, uuid, name, MiB`` a line, those that ``CUDA_VISIBLE_DEVICES``
    names, in its order; all where it is not set. Like CUDA it ends at the first name that is none."""
    found: list[tuple[str, str, str, int]] = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[0].isdigit() and parts[3].isdigit():
            found.append((parts[0], parts[1], parts[2], int(parts[3])))
    if visible is None:
        return [Gpu(int(index), name, mib) for index, _, name, mib in found]
    seen: list[Gpu] = []
    for wanted in filter(None, map(str.strip, visible.split(","))):
        if wanted.startswith("MIG-"):
            seen.append(Gpu(len(seen), wanted, 0))
            continue
        match = [
            each for each in found if wanted == each[0] or (wanted.startswith("GPU-") and each[1].startswith(wanted))
        ]
        if not match:
            break
        seen.append(Gpu(len(seen), match[0][2], match[0][3]))
    return seen


def check_gpus(config: RunConfig, gpus: list[Gpu]) -> str:
    """What the run uses of the devices that it sees, in words. Raises MlrlError where one is missing or too small."""
    learner, servers = learner_devices(config), server_devices(config)
    wanted = {*learner, *servers}
    if not wanted:
        return f"none wanted, {len(gpus)} found"
    if wanted - {gpu.index for gpu in gpus}:
        raise MlrlError(
            f"{len(wanted)} wanted ({len(learner)} learner, {len(servers)} servers), {len(gpus)} found: "
            f"{propose_split(len(gpus))}"
        )
    _check_memory(config, gpus)
    names = ", ".join(sorted({_with_memory(gpu) for gpu in gpus}))
    return f"{len(gpus)} x {names}: {len(learner)} for the learner, {len(servers)} for servers"


def _with_memory(gpu: Gpu) -> str:
    return f"{gpu.name} {gpu.memory_mib / 1024:.0f} GB" if gpu.memory_mib else gpu.name


def _check_memory(config: RunConfig, gpus: list[Gpu]) -> None:
    """A server has its share of a device, the learner all of one, or what a server there leaves."""
    learner, servers = learner_devices(config), server_devices(config)
    shape, share = shape_of(config), config.generation.gpu_memory_share
    needs = needs_of(config, shape) if shape is not None else None
    for gpu in gpus:
        gib = gpu.memory_mib / 1024
        both = gpu.index in learner and gpu.index in servers
        if both and (needs is None or not gib) and share > _SHARED:
            raise MlrlError(f"{_shared(config, gpu)}: lower generation.gpu_memory_share, or {propose_split(len(gpus))}")
        if needs is None or not gib:
            continue
        if gpu.index in servers and needs.server > gib * share:
            raise MlrlError(
                f"cuda:{gpu.index} ({gpu.name}) has {gib:.0f} GB, of which generation.gpu_memory_share = {share:g} "
                f"gives the server {gib * share:.0f} and it needs about {needs.server:.0f}: take a smaller model"
                + (" or more GPUs" if both else "")
            )
        left = gib * (1 - share) if both else gib
        if gpu.index in learner and needs.learner > left:
            if both:
                raise MlrlError(
                    f"{_shared(config, gpu)}, and it leaves {left:.0f} GB of the {needs.learner:.0f} that the "
                    f"learner needs: {propose_split(len(gpus))}"
                )
            raise MlrlError(
                f"cuda:{gpu.index} ({gpu.name}) has {gib:.0f} GB, the learner needs about {needs.learner:.0f}: "
                "take a smaller model, more learner.ranks or a smaller ppo.micro_batch_tokens"
            )


def _shared(config: RunConfig, gpu: Gpu) -> str:
    ranks = config.learner.ranks
    return f"cuda:{gpu.index} is the learner's (learner.ranks = {ranks} takes the first ones) and a server's"


def learner_devices(config: RunConfig) -> list[int]:
    """Numbers of the devices that the learner's processes take, one each: the first of those that the run sees."""
    return list(range(config.learner.ranks)) if config.learner.device == "cuda" else []


def server_devices(config: RunConfig) -> list[int]:
    """Numbers, counted likewise, of the devices that servers of this run are started on."""
    if config.generation.backend != "vllm":
        return []
    return [int(each.removeprefix("cuda:")) for each in config.generation.servers if each.startswith("cuda:")]


def propose_split(count: int) -> str:
    """Settings for ``count`` GPUs, in words: half for the learner, the rest for servers; a single one for both."""
    if count == 0:
        return "without a GPU train a small model on the CPU, --profile smollm2"
    if count == 1:
        return (
            "with 1 GPU let both have a part of it: "
            f'learner.ranks=1 generation.servers=["cuda:0"] generation.gpu_memory_share={_SHARED:g}'
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
