"""A tiny Llama and batches for it: everything here runs in well under a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mlrl_core.config import RunConfig, load_config
from mlrl_core.learner.batch_file import BatchRow
from tests.models import save_llama

VOCABULARY = 67


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    # Far from uniform, so that mistakes show.
    return save_llama(tmp_path_factory.mktemp("backbone"), shape, tokenizer=False, initializer_range=0.3, **ids)


@pytest.fixture(scope="session")
def make_config() -> Callable[..., RunConfig]:
    """``make_config("ppo.clip=0.1")``: a small float32 configuration with overrides."""

    def make(*overrides: str) -> RunConfig:
        small = ("policy.lora.r=8", "policy.lora.alpha=16", "ppo.learning_rate=1e-2", "ppo.critic_learning_rate=1e-2")
        # No profile of a user's: what is tuned there must not move what is measured here.
        steps = ("policy.dtype=float32", "ppo.epochs=2", "ppo.minibatches=2", "ppo.gae_lambda=0.95")
        # The log-probabilities of these tests' batches are made up.
        made_up = ("sampling.temperature=0.7", "learner.threads=1", "learner.mismatch_limit=1e9")
        return load_config("default", [*small, *steps, *made_up, *overrides])

    return make


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., list[BatchRow]]:
    """``make_rows([3, 7], prompts=2)``: rows with these response lengths over shared prompts."""

    def make(lengths: list[int], prompts: int = 1, seed: int = 0, version: int = 0) -> list[BatchRow]:
        rng = random.Random(seed)
        texts = [tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 9))) for _ in range(prompts)]
        return [
            BatchRow(
                experience_id=f"{seed}-{i}",
                competition_id="toy",
                prompt_ids=texts[i % prompts],
                response_ids=tuple(rng.randrange(VOCABULARY) for _ in range(length)),
                rollout_log_probs=tuple(-rng.random() * 6 for _ in range(length)),
                reward=rng.choice([-10.0, -9.8, rng.random()]),
                duration_s=rng.random() * 10,
                duration_weight=0.05 + rng.random() * 2,
                policy_version=version,
                outcome="graded",
                finish_reason="stop",
            )
            for i, length in enumerate(lengths)
        ]

    return make
