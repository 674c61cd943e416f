"""What an adapter must be before a server may see it. A server takes nearly anything and answers 200; one with NaN
then poisons it for every request, the base model's included, until it is restarted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlrl_core.errors import MlrlError

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what a server can be started with


def served_rank(rank: int) -> int:
    """The smallest rank of a server that takes adapters of ``rank``. Raises MlrlError above the largest."""
    fitting = [each for each in RANKS if each >= rank]
    if not fitting:
        raise MlrlError(f"policy.lora.r = {rank}: vLLM serves adapters up to rank {RANKS[-1]}")
    return fitting[0]


def check_adapter(folder: Path, max_rank: int | None) -> None:
    """Raises MlrlError when the adapter is not plain LoRA up to ``max_rank`` (None: unknown) with finite weights."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        settings: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
        rank = int(settings["r"])
        tensors = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise MlrlError(f"{folder}: not a readable adapter folder ({error})") from None
    rank = max([rank, *(settings.get("rank_pattern") or {}).values()])
    if max_rank is not None and rank > max_rank:
        raise MlrlError(f"{folder}: an adapter of rank {rank}, but the server takes {max_rank}: start it with more")
    refused = {
        "use_dora": settings.get("use_dora"),
        f"bias = {settings.get('bias')}": settings.get("bias", "none") != "none",
        "modules_to_save": settings.get("modules_to_save"),
    }
    for what, there in refused.items():
        if there:
            raise MlrlError(f"{folder}: the adapter has {what}, which vLLM does not serve: train without it")
    if not tensors:
        raise MlrlError(f"{folder}: the adapter holds no weights")
    for name, tensor in tensors.items():
        if "lora_" not in name or "lm_head" in name or "embed" in name:
            raise MlrlError(f"{folder}: the adapter holds {name}, which vLLM does not serve right: leave it out")
        if not bool(torch.isfinite(tensor).all()):
            raise MlrlError(f"{folder}: {name} is not finite: the version is broken, go back to the one before it")
