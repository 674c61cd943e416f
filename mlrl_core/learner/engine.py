"""The update: one batch in, the next version of both adapters in memory (learner.md 3).

``Engine`` knows nothing of files and requests: worker.py gives it batches, versions.py publishes what it made. Every
rank of a group has an engine, gets the same rows and calls the same methods.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.learner import trust_region
from mlrl_core.learner.batch_file import BatchRow, check_rows
from mlrl_core.learner.checkpoint import load_state, prepare_optimizer, save_state
from mlrl_core.learner.metrics import batch_metrics, memory_metrics
from mlrl_core.learner.network import Network, Role, Trained, part
from mlrl_core.learner.packing import Pack, blank_pack, pack_rows, share_of
from mlrl_core.learner.ranks import Ranks
from mlrl_core.learner.tensors import TensorBatch, make_targets
from mlrl_core.learner.training import train
from mlrl_core.learner.versions import CANARY_TEMPERATURE

CANARY_TOKENS = 16
GAP_ROWS = 8


class Engine:
    """Policy, critic, reference and their optimisers.

    ``model`` is the peft model with the adapter ``policy`` active: sample from it between updates (one rank only).
    ``version`` counts the updates; the same batch at the same version is the same update.
    """

    def __init__(self, backbone_dir: Path, config: RunConfig, ranks: Ranks | None = None) -> None:
        self.config = config
        self.ranks = ranks or Ranks.alone()
        self.network = Network(Path(backbone_dir), config, self.ranks)
        self.version = 0
        self.value_bias_set = False
        self.skipped_steps = 0
        self.passes = 0  # forward passes made: a sign of life
        self.optimizers: dict[Trained, torch.optim.AdamW] = {
            "policy": self._adamw("policy", config.ppo.learning_rate),
            "critic": self._adamw("critic", config.ppo.critic_learning_rate),
        }

    @property
    def model(self) -> Any:
        return self.network.peft_model

    def update(self, rows: Sequence[BatchRow]) -> dict[str, float]:
        """Train on ``rows`` (already weighted) and go to the next version. Returns the metrics of learner.md 12.

        Raises MlrlError for rows that can't be trained on and for gradients that stay non-finite; the engine is then to
        be thrown away.
        """
        check_rows(rows)
        self.check_ids(rows)
        started = time.perf_counter()
        torch.manual_seed(self.seed_for("update"))
        before = {name: part(p.detach()).clone() for name, p in self.network.trainable("policy").items()}
        batch = TensorBatch.of(rows)
        packs = self.deal(rows, range(len(rows)), batch)
        clock = time.perf_counter()
        ref_log_probs = self.compute_log_probs(packs, batch, "reference")
        corrected = self.config.ppo.importance_correction != "none"
        old_log_probs = self.compute_log_probs(packs, batch) if corrected else batch.rollout_log_probs
        log_probs_s, clock = time.perf_counter() - clock, time.perf_counter()
        values = self._old_values(packs, batch)
        values_s, clock = time.perf_counter() - clock, time.perf_counter()
        start_log_probs = trust_region.start_log_probs(self, rows, packs, batch, old_log_probs)
        targets = make_targets(batch, ref_log_probs, old_log_probs, values, self.config)
        metrics = batch_metrics(rows, batch, targets, self.version)
        metrics |= train(self, rows, batch, targets, start_log_probs)
        metrics["learner/kl_halvings"] = trust_region.keep_close(self, before, packs, batch, start_log_probs)
        train_s = time.perf_counter() - clock
        tokens = batch.response_mask.sum().item()
        metrics |= {
            "adapter/delta_norm": trust_region.distance(self, before),
            "learner/tokens": tokens,
            "learner/tokens_per_s": tokens / (time.perf_counter() - started),
            "timing_s/logprobs": log_probs_s,
            "timing_s/values": values_s,
            "timing_s/train": train_s,
        }
        metrics |= memory_metrics(self.ranks.device)
        self.version += 1
        return metrics

    @torch.no_grad()
    def compute_log_probs(self, packs: Sequence[Pack], batch: TensorBatch, role: Role = "policy") -> Tensor:
        """Log-probabilities [N, R] of the response tokens at the sampling temperature, 0 where the mask is 0."""
        out = torch.zeros_like(batch.response_mask)
        with self.network.acting(role):
            for pack in packs:
                scores = self.forward(pack, role)
                out.view(-1)[pack.slots] = scores.log_probs[: pack.slots.numel()].cpu()
        return self.ranks.sum(out)

    @torch.no_grad()
    def compute_values(self, packs: Sequence[Pack], batch: TensorBatch) -> Tensor:
        """Values [N, R] before each response token, 0 where the mask is 0."""
        out = torch.zeros_like(batch.response_mask)
        with self.network.acting("critic"):
            for pack in packs:
                out.view(-1)[pack.slots] = self.forward(pack, "critic")[: pack.slots.numel()].cpu()
        return self.ranks.sum(out)

    def deal(self, rows: Sequence[BatchRow], indices: Sequence[int], batch: TensorBatch) -> list[Pack]:
        """This rank's packs of the rows at ``indices``, as many as on every other rank."""
        width = batch.response_mask.shape[1]
        share = share_of(rows, indices, self.ranks.rank, self.ranks.world)
        packs = pack_rows(rows, share, width, self.config.ppo.micro_batch_tokens)
        packs += [blank_pack()] * (self.ranks.max(len(packs)) - len(packs))
        return [pack.to(self.ranks.device) for pack in packs]

    def forward(self, pack: Pack, role: Role) -> Any:
        """One pass of the network; within ``network.acting(role)``."""
        self.passes += 1
        return self.network(pack, role)

    def seed_for(self, purpose: str) -> int:
        """From the run's seed, the version and ``purpose``: a repeated update is the same update."""
        text = f"{self.config.seed} {self.version} {purpose}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")

    def save(self, folder: Path) -> None:
        """Write all that training on needs into ``folder``, which must not exist."""
        save_state(self, folder)

    def load(self, folder: Path) -> None:
        """Go on from a saved state. Raises MlrlError when anything of it is missing or doesn't fit."""
        load_state(self, folder)

    def export_adapter(self, folder: Path) -> None:
        """Write the policy's adapter as peft and vLLM load it."""
        self.network.export_adapter(folder, self.ranks)

    def check_finite(self) -> None:
        """Raise MlrlError unless every adapter and head tensor is finite: nothing else may be published."""
        tensors = self.network.trainable()
        broken = torch.tensor([not torch.isfinite(part(p)).all().item() for p in tensors.values()], dtype=torch.float)
        for name, count in zip(tensors, self.ranks.sum(broken).tolist(), strict=True):
            if count:
                raise MlrlError(
                    f"{name} is not finite at version {self.version}: lower ppo.learning_rate and start again from "
                    "the last version"
                )

    def sampler_gap(self, rows: Sequence[BatchRow]) -> float | None:
        """Mean absolute difference between the sampler's log-probabilities and this policy's, over the first 8 rows
        that this version sampled; None when there are none. Below 0.001 in fp32 on both sides, near 0.05 in bf16."""
        own = [row for row in rows if row.policy_version == self.version and row.response_ids][:GAP_ROWS]
        if not own:
            return None
        batch = TensorBatch.of(own)
        log_probs = self.compute_log_probs(self.deal(own, range(len(own)), batch), batch)
        return (log_probs - batch.rollout_log_probs)[batch.response_mask.bool()].abs().mean().item()

    def canary(self) -> tuple[list[int], list[float]]:
        """Fixed token ids and the policy's log-probabilities of all but the first of them, for whoever serves the
        adapter to compare with: at ``CANARY_TEMPERATURE``."""
        size = self.model.get_base_model().config.vocab_size
        ids = tuple((7919 * i + 1) % size for i in range(CANARY_TOKENS))
        row = BatchRow("canary", "", ids[:1], ids[1:], (0.0,) * (len(ids) - 1), 0, 0, 1, 0, "graded", "length")
        batch = TensorBatch.of([row])
        sampling, self.network.temperature = self.network.temperature, CANARY_TEMPERATURE
        try:
            log_probs = self.compute_log_probs(self.deal([row], [0], batch), batch)
        finally:
            self.network.temperature = sampling
        return list(ids), log_probs[0].tolist()

    def _old_values(self, packs: Sequence[Pack], batch: TensorBatch) -> Tensor:
        """Values [N, R] before the update; zeros without a critic.

        A new critic starts at the mean return of its first batch: from 0 the value clip would take many updates.
        """
        if self.config.ppo.advantage != "gae":
            return torch.zeros_like(batch.response_mask)
        values = self.compute_values(packs, batch)
        if self.value_bias_set:
            return values
        bias = batch.episode_reward.mean().float()
        with torch.no_grad():
            self.network.value_head.bias.fill_(bias.item())
        self.value_bias_set = True
        return values + bias * batch.response_mask

    def check_ids(self, rows: Sequence[BatchRow]) -> None:
        """Raise MlrlError for token ids that the policy doesn't have."""
        size = self.model.get_base_model().config.vocab_size
        largest = max(max((*row.prompt_ids, *row.response_ids)) for row in rows)
        if largest >= size:
            raise MlrlError(f"token id {largest} in a batch, but the policy's vocabulary has {size}: wrong tokenizer?")

    def _adamw(self, role: Trained, learning_rate: float) -> torch.optim.AdamW:
        parameters = list(self.network.trainable(role).values())
        ppo = self.config.ppo
        optimizer = torch.optim.AdamW(
            parameters, lr=learning_rate, betas=ppo.adam_betas, eps=ppo.adam_eps, weight_decay=0.0
        )
        prepare_optimizer(optimizer)
        return optimizer
