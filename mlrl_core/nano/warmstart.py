"""Supervised fine-tuning of the nano policy on demonstrations: what comes out is the backbone of version 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import torch
from transformers import LlamaForCausalLM

from mlrl_core.config.policy import WarmstartConfig

_WARMUP_SHARE = 0.1
_PRINT_EVERY = 10


def fine_tune(
    model: LlamaForCausalLM,
    prompt_ids: Sequence[int],
    responses: Sequence[Sequence[int]],
    config: WarmstartConfig,
    progress: Callable[[int, int, float], None] = lambda step, total, loss: None,
) -> float:
    """Minimise the cross-entropy of ``responses`` (ids, end token included) after the one prompt, in place.

    Batches hold responses of similar length so that little is padded. ``progress`` gets (step, steps, loss) now and
    then. Returns the mean loss of the last tenth of the steps, in nats per token.
    """
    rng = Random(config.seed)
    batches = [b for _ in range(config.epochs) for b in _batches(responses, config.batch_size, rng)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, len(batches)))
    model.train()
    losses: list[float] = []
    for step, batch in enumerate(batches):
        loss = _response_loss(model, prompt_ids, [responses[i] for i in batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % _PRINT_EVERY == 0 or step == len(batches) - 1:
            progress(step + 1, len(batches), losses[-1])
    model.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then a half cosine to a twentieth."""
    warmup = max(1, int(steps * _WARMUP_SHARE))
    if step < warmup:
        return (step + 1) / warmup
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _batches(responses: Sequence[Sequence[int]], size: int, rng: Random) -> list[list[int]]:
    order = sorted(range(len(responses)), key=lambda i: (len(responses[i]), rng.random()))
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    rng.shuffle(batches)
    return batches


def _response_loss(model: LlamaForCausalLM, prompt_ids: Sequence[int], batch: list[Sequence[int]]) -> torch.Tensor:
    """Mean cross-entropy over response tokens. Right padding needs no attention mask: under causal attention no real
    token sees a later one, and padded positions carry no loss."""
    longest = max(len(r) for r in batch)
    prompt = len(prompt_ids)
    ids = torch.zeros(len(batch), prompt + longest, dtype=torch.long)
    targets = torch.full((len(batch), longest), -100)
    ids[:, :prompt] = torch.tensor(prompt_ids)
    for row, response in enumerate(batch):
        ids[row, prompt : prompt + len(response)] = torch.tensor(response)
        targets[row, : len(response)] = torch.tensor(response)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, prompt - 1 : -1]
    logits = model.lm_head(hidden)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
