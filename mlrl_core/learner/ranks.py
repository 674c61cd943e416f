"""The processes that train together: one by default, else a torchrun group over gloo (CPU) or nccl (GPU).

Alone, no process group exists and every operation here is the identity.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from mlrl_core.errors import MlrlError


@dataclass(frozen=True)
class Ranks:
    """This process's place in the group and the device it computes on."""

    rank: int
    world: int
    device: torch.device

    @classmethod
    def join(cls, device: Literal["cpu", "cuda"], timeout_s: float) -> Ranks:
        """Join the group that torchrun's environment describes; without one, be alone.

        ``timeout_s`` limits every collective: it must be longer than the work between two of them, not than the
        time between updates, for nobody waits within a collective while idle. Raises MlrlError for GPUs that are not
        there.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise MlrlError("learner.device = cuda, but PyTorch sees no GPU: set it to cpu or install a CUDA build")
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if device == "cuda" and world > (there := torch.cuda.device_count()):
            raise MlrlError(
                f"learner.ranks = {world}, but PyTorch sees {there} GPUs: lower it or set CUDA_VISIBLE_DEVICES"
            )
        local = int(os.environ.get("LOCAL_RANK", "0"))
        place = torch.device(f"cuda:{local}" if device == "cuda" else "cpu")
        if device == "cuda":
            torch.cuda.set_device(place)
        if world == 1:
            return cls(0, 1, place)
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        return cls(dist.get_rank(), world, place)

    @classmethod
    def alone(cls) -> Ranks:
        """One process on the CPU."""
        return cls(0, 1, torch.device("cpu"))

    def sum(self, tensor: Tensor) -> Tensor:
        """Elementwise sum over the ranks, on the device of ``tensor``. Exact for slots that one rank alone filled."""
        if self.world == 1:
            return tensor
        total = tensor.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def max(self, value: int) -> int:
        """Largest ``value`` of any rank."""
        if self.world == 1:
            return value
        largest = torch.tensor(value, device=self.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest.item())

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.world > 1:
            dist.barrier()
