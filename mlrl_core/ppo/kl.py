"""Estimators of the divergence between two policies from the log-probabilities of sampled tokens."""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


def k1(log_ratio: Tensor) -> Tensor:
    """``x = log p - log p_ref`` of tokens sampled from p, clamped to +-20: unbiased, of either sign."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k2(log_ratio: Tensor) -> Tensor:
    """``x^2 / 2``: its gradient is the gradient of the divergence."""
    return 0.5 * k1(log_ratio).square()


def k3(log_ratio: Tensor, limit: float = 10.0) -> Tensor:
    """``exp(-x) - 1 + x`` of tokens sampled from p, never negative, cut at ``limit``."""
    x = k1(log_ratio)
    return (torch.expm1(-x) + x).clamp(max=limit)
