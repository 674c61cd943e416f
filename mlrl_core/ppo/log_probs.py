"""Log-probabilities of sampled tokens from hidden states, without ever holding the whole table of logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_CHUNK_ELEMENTS = 2**25  # fp32 logits held at once: 128 MiB


def token_log_probs(
    hidden: Tensor, weight: Tensor, ids: Tensor, temperature: float, *, entropy_grad: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of ``ids`` and entropy of the distribution at each position.

    ``hidden`` [M, H] are the states that predict ``ids`` [M] (position t predicts token t + 1), ``weight`` [V, H]
    is the frozen output projection. Logits are divided by ``temperature``, the one the tokens were sampled at, and the
    log-softmax is fp32, in chunks of positions. Returns two fp32 tensors [M].

    The gradient reaches ``hidden`` only. It is exact and is prepared in the forward pass (the gradient of a
    log-probability is ``weight[id] - softmax @ weight``), so the backward pass holds [M, H] numbers in place of
    [M, V]. ``entropy_grad`` makes the entropy differentiable too. Raises ValueError for a trainable ``weight``.
    """
    if weight.requires_grad:
        raise ValueError("the output projection must be frozen: its gradient is not computed")
    log_probs, entropy = _TokenLogProbs.apply(hidden, weight, ids, temperature, entropy_grad)
    return log_probs, entropy


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, ids: Tensor, temperature: float, entropy_grad: bool
    ) -> tuple[Tensor, Tensor]:
        rows = max(64, min(2048, _CHUNK_ELEMENTS // weight.shape[0]))
        log_probs = hidden.new_empty(hidden.shape[0], dtype=torch.float32)
        entropy = torch.empty_like(log_probs)
        needs_grad = ctx.needs_input_grad[0]
        slope = torch.empty_like(hidden) if needs_grad else None
        entropy_slope = torch.empty_like(hidden) if needs_grad and entropy_grad else None
        for start in range(0, hidden.shape[0], rows):
            part = slice(start, start + rows)
            table = torch.log_softmax((hidden[part] @ weight.T).float() / temperature, dim=-1)
            log_probs[part] = table.gather(1, ids[part, None]).squeeze(1)
            probs = table.exp()
            entropy[part] = -(probs * table).sum(-1)
            if slope is not None:
                slope[part] = (weight[ids[part]] - probs.to(weight.dtype) @ weight) / temperature
            if entropy_slope is not None:
                pull = probs * (table + entropy[part, None])
                entropy_slope[part] = (pull.to(weight.dtype) @ weight) / -temperature
        ctx.save_for_backward(slope, entropy_slope)
        if not entropy_grad:
            ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        slope, entropy_slope = ctx.saved_tensors
        grad = grads[0][:, None].to(slope.dtype) * slope
        if entropy_slope is not None:
            grad = grad + grads[1][:, None].to(slope.dtype) * entropy_slope
        return grad, None, None, None, None
