"""Attention over packs, registered with transformers under a name of its own.

Without a pack (sampling, plain forwards) it is transformers' sdpa attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from mlrl_core.learner.packing import PackLayout

NAME = "mlrl_packed"


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed: PackLayout | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one pack: [1, heads, T, D] in, [1, T, heads, D] out. A prompt attends to itself, a response to its
    prompt and itself, both causally. The one ``split`` and one ``cat`` keep the backward pass linear in T (a slice
    per response would add a zero tensor of length T each)."""
    if packed is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    repeats = query.shape[1] // key.shape[1]
    segments = packed.segments
    queries = iter(query.split(segments, dim=2))
    keys = iter(repeat_kv(key, repeats).split(segments, dim=2))
    values = iter(repeat_kv(value, repeats).split(segments, dim=2))
    causal = packed.causal_mask(query.dtype, query.device)
    out: list[Tensor] = []
    for prompt_len, responses in packed.groups:
        prompt_key, prompt_value = next(keys), next(values)
        out.append(scaled_dot_product_attention(next(queries), prompt_key, prompt_value, is_causal=True, scale=scaling))
        mask = nn.functional.pad(causal, (prompt_len, 0))
        for length in responses:
            q, k, v = next(queries), next(keys), next(values)
            if not length:
                continue
            k, v = torch.cat([prompt_key, k], dim=2), torch.cat([prompt_value, v], dim=2)
            near = mask[:length, : prompt_len + length]
            out.append(scaled_dot_product_attention(q, k, v, attn_mask=near, scale=scaling))
    return torch.cat(out, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
