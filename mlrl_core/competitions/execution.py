"""What competitions ask of the sandbox, put into a run's configuration when the run is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlrl_core.competitions.competition import Competition
from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError


def with_execution_settings(config: RunConfig, competitions: Sequence[Competition]) -> RunConfig:
    """``config`` with the limits that ``competitions`` ask for, where neither the profile nor the user set them.

    The run's ``config.toml`` then holds what is in force. One sandbox serves all competitions of a run, so that of
    several the largest limit counts (and the default, where one asks for nothing). Raises MlrlError for wishes that
    can't be met: GPUs without devices to lease, or two images.
    """
    sandbox = config.sandbox
    chosen: dict[str, Any] = {}
    for name in ("time_limit_s", "cpus", "memory_mb"):
        wishes = [getattr(each.execution, name) for each in competitions]
        if any(wish is not None for wish in wishes) and name not in sandbox.model_fields_set:
            chosen[name] = max(getattr(sandbox, name) if wish is None else wish for wish in wishes)
    images = {each.execution.image or sandbox.image for each in competitions}
    if "image" not in sandbox.model_fields_set and images != {sandbox.image}:
        if len(images) > 1:
            raise MlrlError(f"the competitions ask for the images {', '.join(sorted(images))}: set sandbox.image")
        chosen["image"] = images.pop()
    for each in competitions:
        gpus = each.execution.gpus or 0
        if gpus > 1 or (gpus and not sandbox.gpus):
            have = "a program gets one" if sandbox.gpus else "none is there to lease: list their UUIDs in sandbox.gpus"
            raise MlrlError(f"competition '{each.id}' asks for {gpus} GPU{'s' * (gpus > 1)}, but {have}")
    return config.model_copy(update={"sandbox": sandbox.model_copy(update=chosen)}) if chosen else config
