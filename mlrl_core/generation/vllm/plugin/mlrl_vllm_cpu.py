"""A plugin that vLLM loads in each of its processes on a CPU: LoRA by matrix products, adapter by adapter.

vLLM 0.32's operations for devices without kernels copy both matrices of an adapter for every token of the batch, which
takes two thirds of a step of a small model; and they read a token without an adapter as one of the last slot, so that
requests to the base model get that slot's adapter when they share a batch. This file is found by its folder in
``PYTHONPATH`` and imports nothing of mlrl: it runs in vLLM's environment.
"""

import torch


def register() -> None:
    """Put the operations below in the place of vLLM's; called by vLLM, maybe more than once."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    for module in (lora_ops, punica_cpu):
        for operation in (bgmv_shrink, bgmv_expand, bgmv_expand_slice):
            if not callable(getattr(module, operation.__name__, None)):
                raise RuntimeError(f"this vLLM has no {operation.__name__} in {module.__name__}")
            setattr(module, operation.__name__, operation)


def bgmv_shrink(
    inputs: torch.Tensor,
    lora_b_weights: torch.Tensor,
    output_tensor: torch.Tensor,
    lora_indices_tensor: torch.Tensor,
    scaling: float = 1.0,
) -> None:
    """``output[t, :r] = scaling * A[slot of t] @ inputs[t]``: inputs [T, in], A [slots, 1, r, in], 0 without."""
    rank = lora_b_weights.shape[-2]
    output_tensor[:, :rank] = scaling * _products(inputs, lora_b_weights, lora_indices_tensor, output_tensor.dtype)


def bgmv_expand(
    inputs: torch.Tensor,
    lora_b_weights: torch.Tensor,
    output_tensor: torch.Tensor,
    lora_indices_tensor: torch.Tensor,
    add_inputs: bool = True,
) -> None:
    """``output[t] (+)= B[slot of t] @ inputs[t]``: inputs [T, r], B [slots, 1, out, r]; the narrower width counts."""
    width = min(lora_b_weights.shape[-2], output_tensor.shape[1])
    bgmv_expand_slice(inputs, lora_b_weights[..., :width, :], output_tensor, lora_indices_tensor, 0, width, add_inputs)


def bgmv_expand_slice(
    inputs: torch.Tensor,
    lora_b_weights: torch.Tensor,
    output_tensor: torch.Tensor,
    lora_indices_tensor: torch.Tensor,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = True,
) -> None:
    """As ``bgmv_expand``, into the columns from ``slice_offset`` on."""
    products = _products(inputs, lora_b_weights, lora_indices_tensor, output_tensor.dtype)
    target = output_tensor[: len(products), slice_offset : slice_offset + slice_size]
    if add_inputs:
        target += products
    else:
        target.copy_(products)


def _products(inputs: torch.Tensor, weights: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``weights[slot of t] @ inputs[t]`` [T, out]; zeros where the slot is -1. One product per slot in the batch."""
    matrices = weights.squeeze(1) if weights.dim() == 4 else weights
    rows = inputs.to(dtype)
    present = set(slots.tolist())
    if len(present) == 1 and -1 not in present:
        return rows @ matrices[present.pop()].to(dtype).T
    made = rows.new_zeros(len(rows), matrices.shape[-2])
    for slot in present - {-1}:
        those = slots == slot
        made[those] = rows[those] @ matrices[slot].to(dtype).T
    return made
