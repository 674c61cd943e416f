"""Sampling responses from a version of the policy."""

from __future__ import annotations

import threading
from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.generation.protocol import Generated, GenerationRequest, Generator

__all__ = ["Generated", "GenerationRequest", "Generator", "open_generator"]


def open_generator(
    config: RunConfig, backbone_dir: Path, run_dir: Path, cancelled: threading.Event | None = None
) -> Generator:
    """The configured backend over the frozen backbone in ``backbone_dir``; load a version before sampling.

    ``run_dir`` gives servers their logs and adapters their names; ``cancelled`` ends the wait for a server's start.
    Raises MlrlError for a mistake in ``config.generation``, InfraError when a server does not start.
    """
    if config.generation.backend == "vllm":
        from mlrl_core.generation.vllm.generator import VllmGenerator

        return VllmGenerator(config, backbone_dir, run_dir, cancelled)
    from mlrl_core.generation.in_process import InProcessGenerator

    return InProcessGenerator(backbone_dir, config.sampling, config.generation, config.policy.dtype)
