"""Sampling responses from a version of the policy."""

from __future__ import annotations

from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.generation.protocol import Generated, GenerationRequest, Generator

__all__ = ["Generated", "GenerationRequest", "Generator", "open_generator"]


def open_generator(config: RunConfig, backbone_dir: Path) -> Generator:
    """The configured backend over the frozen backbone in ``backbone_dir``; load a version before sampling."""
    from mlrl_core.generation.in_process import InProcessGenerator

    return InProcessGenerator(backbone_dir, config.sampling, config.generation, config.policy.dtype)
