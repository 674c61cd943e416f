"""The numbers of one update, under the same names in every run (learner.md 12)."""

from __future__ import annotations

import resource
from collections.abc import Sequence

import torch
from torch import Tensor

from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.ranks import Ranks
from mlrl_core.learner.tensors import Targets, TensorBatch


class Sums:
    """Sums of ``keys`` over tokens, micro-batches and optimiser steps; ``means`` divides by what was counted."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        self.totals = torch.zeros(2, len(self.keys), dtype=torch.float64)

    def add(self, key: str, values: Tensor) -> None:
        """Add every element of ``values`` to ``key``."""
        column = self.keys.index(key)
        self.totals[0, column] += values.double().sum().item()
        self.totals[1, column] += values.numel()

    def means(self, ranks: Ranks) -> dict[str, float]:
        """Mean over all ranks of what was added to each key; 0 where nothing was (no step was made)."""
        total, count = ranks.sum(self.totals)
        return dict(zip(self.keys, (total / count.clamp(min=1)).tolist(), strict=True))


def effective_share(weights: Tensor) -> float:
    """Effective sample size of positive ``weights`` as a share of their number: (sum w)^2 / (n sum w^2)."""
    w = weights.double()
    total = w.square().sum().item() * w.numel()
    return w.sum().item() ** 2 / total if total > 0 else 0.0


def batch_metrics(rows: Sequence[BatchRow], batch: TensorBatch, targets: Targets, version: int) -> dict[str, float]:
    """What is known of the batch before the first step; ``version`` is the one being trained."""
    on = batch.response_mask.bool()
    staleness = [float(version - row.policy_version) for row in rows]
    returns, values = targets.returns[on].double(), targets.values[on].double()
    spread = returns.var(unbiased=False).item() if returns.numel() else 0.0
    residual = (returns - values).var(unbiased=False).item() if returns.numel() else 0.0
    lengths = batch.response_len.double()
    return {
        "actor/ref_kl": targets.reference_kl,
        "critic/vf_explained_var": 1 - residual / spread if spread > 0 else 0.0,
        "critic/value_mean": values.mean().item() if values.numel() else 0.0,
        "critic/return_mean": returns.mean().item() if returns.numel() else 0.0,
        "advantage/std_before_whitening": targets.std_before_whitening,
        "advantage/reward_spread": (batch.reward.max() - batch.reward.min()).item(),
        "staleness/mean": sum(staleness) / len(staleness),
        "staleness/max": max(staleness),
        "duration_weight/max": batch.duration_weight.max().item(),
        "duration_weight/ess": effective_share(batch.duration_weight),
        "response_length/mean": lengths.mean().item(),
        "response_length/max": lengths.max().item(),
        "response_length/clip_ratio": sum(row.finish_reason == "length" for row in rows) / len(rows),
    }


def mismatch_metrics(difference: Tensor) -> dict[str, float]:
    """``difference`` [M]: log-probability of the learner minus that of the sampler, of sampled tokens, before any step.

    The divergence is k3 under the sampler: ``exp(x) - 1 - x``, never negative.
    """
    x = difference.double().clamp(-20, 20)
    if not x.numel():
        x = torch.zeros(1, dtype=torch.float64)
    k3, ratio = torch.expm1(x) - x, x.exp()
    return {
        "mismatch_kl/mean": k3.mean().item(),
        "mismatch_kl/max": k3.max().item(),
        "sampling/abs_log_prob_diff": x.abs().mean().item(),
        "sampling/importance_ratio/min": ratio.min().item(),
        "sampling/importance_ratio/mean": ratio.mean().item(),
        "sampling/importance_ratio/max": ratio.max().item(),
        "rollout_is_ess": effective_share(ratio),
    }


def memory_metrics(device: torch.device) -> dict[str, float]:
    """Resident memory now and device memory at its peak, in GB."""
    with open("/proc/self/statm") as handle:
        pages = int(handle.read().split()[1])
    on_device = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"learner/rss_gb": pages * resource.getpagesize() / 1e9, "learner/device_mem_gb": on_device / 1e9}
