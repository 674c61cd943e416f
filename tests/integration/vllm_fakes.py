"""A tiny model with adapters, saved so that a vLLM server can serve them, and what transformers says of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaForCausalLM

from mlrl_core.config import RunConfig, load_config
from mlrl_core.errors import MlrlError
from mlrl_core.generation.vllm.environment import find_python
from tests.models import TINY, save_llama

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEMPERATURE = 0.7


def require_vllm() -> None:
    """Skip where there is no environment with vLLM; with MLRL_REQUIRE_VLLM=1 that is a failure."""
    try:
        find_python()
    except MlrlError as error:
        if os.environ.get("MLRL_REQUIRE_VLLM") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


def save_backbone(folder: Path, seed: int = 0) -> Path:
    """A small Llama whose tokens are far from equally likely."""
    save_llama(folder, TINY | {"max_position_embeddings": 1024}, seed=seed, initializer_range=0.2)
    # What instruct models ship, and a server would fill its requests with.
    shipped = {"temperature": 0.6, "top_k": 5, "top_p": 0.8, "repetition_penalty": 1.3, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(shipped))
    return folder


def save_version(backbone: Path, folder: Path, seed: int, rank: int = 8, size: float = 0.2, **lora: object) -> Path:
    """An adapter as the learner publishes it: ``adapter/`` and a manifest with its canary. Seed 0 changes nothing;
    the others have an output half of normal numbers with a deviation of ``size``."""
    torch.manual_seed(seed)
    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS, **lora)  # type: ignore[arg-type]
    model = get_peft_model(LlamaForCausalLM.from_pretrained(backbone), settings)
    for name, weight in model.named_parameters():
        if "lora_B" in name and seed:
            torch.nn.init.normal_(weight, std=size)
    model.save_pretrained(folder / "adapter")
    ids = [(7919 * i + 1) % model.config.vocab_size for i in range(16)]
    canary = log_probs(model, ids[:1], ids[1:], 1.0)
    (folder / "manifest.json").write_text(
        json.dumps({"canary_ids": ids, "canary_log_probs": canary, "canary_temperature": 1.0})
    )
    return folder / "adapter"


def with_adapter(backbone: Path, adapter: Path) -> PeftModel:
    """The model that a version is."""
    return PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(backbone), adapter)


@torch.no_grad()
def log_probs(
    model: torch.nn.Module, prompt: Sequence[int], response: Sequence[int], temperature: float
) -> list[float]:
    """Of each response token, by one full forward pass."""
    logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    table = torch.log_softmax(logits.float() / temperature, -1)
    return table.gather(1, torch.tensor(response)[:, None])[:, 0].tolist()


def run_config(backbone: Path, *overrides: str, max_new_tokens: int = 48) -> RunConfig:
    """A run on servers with that backbone."""
    return load_config(
        "nano",
        [
            f"policy.model={backbone}",
            "policy.lora.r=8",
            "policy.lora.alpha=16",
            "prompt.max_tokens=128",
            f"sampling.temperature={TEMPERATURE}",
            f"sampling.max_new_tokens={max_new_tokens}",
            "generation.backend=vllm",
            "generation.kv_cache_gb=1",
            "generation.start_deadline_s=540",  # other work may be on the machine
            *overrides,
        ],
    )
