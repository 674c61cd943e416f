"""Llamas with random weights, saved for transformers and for vLLM: one place for every test and benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# The shape of SmolLM2-135M, by its config.json.
SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}
# As many tokens as the nano tokenizer has. vLLM's attention on a CPU knows no heads below 64.
TINY = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
}


def save_llama(
    folder: Path,
    shape: Mapping[str, int] = TINY,
    *,
    seed: int = 0,
    dtype: str = "float32",
    tokenizer: bool = True,
    **settings: object,
) -> Path:
    """A Llama of ``shape`` in ``folder``, with the nano tokenizer and its special tokens; without ``tokenizer`` those
    come from ``settings``, as does anything else of ``LlamaConfig``."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from mlrl_core.agent.encoding import load_tokenizer
    from mlrl_core.nano.shipped import shipped_dir

    special: dict[str, object] = {}
    if tokenizer:
        nano = load_tokenizer(shipped_dir())
        nano.save_pretrained(folder)
        special = {f"{name}_token_id": getattr(nano, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    torch.manual_seed(seed)
    config = LlamaConfig(**{"tie_word_embeddings": True, **shape, **special, **settings})  # type: ignore[arg-type]
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    return folder
