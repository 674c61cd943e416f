"""Merge a LoRA adapter into plain weights: W' = W + (alpha / r) B A (Hu et al. 2021, equation 3)."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from mlrl_core.errors import MlrlError

_PREFIX = "base_model.model."


class AdapterMerger:
    """Puts one adapter after the other into ``model``, always from the untouched weights.

    Merging from the original, never by undoing the last one, makes the weights a function of the adapter's bytes
    alone: a resumed run samples exactly what an undisturbed one does.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._originals: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def merge(self, adapter_dir: Path) -> None:
        """Raises MlrlError when the folder holds no plain LoRA adapter for this model."""
        try:
            settings = json.loads((adapter_dir / "adapter_config.json").read_text())
            tensors = load_file(adapter_dir / "adapter_model.safetensors")
        except (OSError, ValueError) as error:
            raise MlrlError(f"{adapter_dir}: not a readable adapter folder ({error})") from None
        scale = settings["lora_alpha"] / settings["r"]
        parameters = dict(self._model.named_parameters())
        for name, original in self._originals.items():
            parameters[name].copy_(original)
        for key in sorted(k for k in tensors if k.endswith(".lora_A.weight")):
            stem = key.removesuffix(".lora_A.weight")
            name = f"{stem.removeprefix(_PREFIX)}.weight"
            if name not in parameters or f"{stem}.lora_B.weight" not in tensors:
                raise MlrlError(f"{adapter_dir}: the adapter does not fit the model (no place for {stem})")
            weight = parameters[name]
            original = self._originals.setdefault(name, weight.detach().clone())
            delta = tensors[f"{stem}.lora_B.weight"].float() @ tensors[key].float()
            weight.copy_((original.float() + scale * delta).to(weight.dtype))
