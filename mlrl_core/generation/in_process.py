"""The transformers backend: sampling in this process, for policies small enough to need no server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache, PretrainedConfig

from mlrl_core.config.policy import GenerationConfig, SamplingConfig
from mlrl_core.errors import MlrlError
from mlrl_core.generation.adapter import AdapterMerger
from mlrl_core.generation.protocol import Generated, GenerationRequest


class InProcessGenerator:
    """A Generator over a model folder. Plain temperature sampling: no top-p, no top-k, no penalty, so that the
    log-probabilities are those of the distribution that was sampled from."""

    def __init__(self, model_dir: Path, sampling: SamplingConfig, generation: GenerationConfig, dtype: str) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=getattr(torch, dtype)).eval()
        self._merger = AdapterMerger(self._model)
        self._sampling = sampling
        self._batch_size = generation.batch_size
        self._ends = end_ids(self._model.config)
        self._context = int(getattr(self._model.config, "max_position_embeddings", None) or 1 << 30)
        self._version: int | None = None

    def load_version(self, version: int, adapter_dir: Path) -> None:
        self._merger.merge(adapter_dir)
        self._version = version

    def generate(self, requests: Sequence[GenerationRequest], policy_version: int) -> Iterator[Generated]:
        if policy_version != self._version:
            raise ValueError(f"version {policy_version} was asked for but version {self._version} is loaded")
        return self._batches(requests, policy_version)

    def serving(self, policy_version: int) -> int:
        return policy_version

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing runs on between calls."""

    def _batches(self, requests: Sequence[GenerationRequest], version: int) -> Iterator[Generated]:
        """In the order of the requests, a batch at a time."""
        for start in range(0, len(requests), self._batch_size):
            yield from self._sample(requests[start : start + self._batch_size], version)

    @torch.inference_mode()
    def _sample(self, requests: Sequence[GenerationRequest], version: int) -> list[Generated]:
        """One batch. Rows that have ended leave it, so that the last long response does not pay for the others."""
        began = time.monotonic()
        # A chat template may take what is left of the context beyond the prompt's own bound.
        limit = min(self._sampling.max_new_tokens, self._context - max(len(r.prompt_ids) for r in requests))
        if limit < 1:
            raise MlrlError(f"a prompt fills the model's context of {self._context} tokens: lower prompt.max_tokens")
        uniforms = np.stack([np.random.default_rng(r.seed).random(limit) for r in requests])
        ids, mask = _left_padded([r.prompt_ids for r in requests])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config)
        rows = list(range(len(requests)))
        tokens: list[list[int]] = [[] for _ in requests]
        log_probs: list[list[float]] = [[] for _ in requests]
        seconds = [0.0] * len(requests)
        for step in range(limit):
            logits = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            chosen, chosen_log_probs = _draw(logits, self._sampling.temperature, uniforms[rows, step])
            going: list[int] = []
            for place, row in enumerate(rows):
                tokens[row].append(int(chosen[place]))
                log_probs[row].append(float(chosen_log_probs[place]))
                seconds[row] = time.monotonic() - began
                if tokens[row][-1] not in self._ends:
                    going.append(place)
            if not going:
                break
            if len(going) < len(rows):
                kept = torch.tensor(going)
                cache.batch_select_indices(kept)
                mask, positions, chosen = mask[kept], positions[kept], chosen[kept]
                rows = [rows[place] for place in going]
            ids = chosen[:, None]
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        return [
            Generated(
                solution_id=request.solution_id,
                response_ids=tuple(tokens[row]),
                log_probs=tuple(log_probs[row]),
                finish_reason="stop" if tokens[row][-1] in self._ends else "length",
                seconds=seconds[row],
                policy_version=version,
            )
            for row, request in enumerate(requests)
        ]


def end_ids(config: PretrainedConfig) -> frozenset[int]:
    """The tokens that end a response; some models have several."""
    ends = config.eos_token_id
    return frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])


def _left_padded(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts as N x P ids and a 0/1 mask, padded on the left with id 0 (masked, so any id would do)."""
    longest = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask


def _draw(logits: torch.Tensor, temperature: float, uniform: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Invert the cumulative distribution at ``uniform`` (N numbers in [0, 1)): ids and their log-probabilities, N each.

    The distribution is built in float64 so that rare tokens keep their share; log-probabilities are float32, as the
    learner computes them.
    """
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
    cumulative = log_probs.double().exp().cumsum(-1)
    point = torch.from_numpy(uniform)[:, None] * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, point, right=True).clamp(max=logits.shape[-1] - 1)
    return chosen[:, 0], log_probs.gather(1, chosen)[:, 0]
