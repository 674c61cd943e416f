"""SmolLM2 in this process: what the sampler says of its own tokens is what the learner says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mlrl_core.agent.encoding import chat_prompt_ids, load_tokenizer
from mlrl_core.cache import cache_dir
from mlrl_core.config import load_config
from mlrl_core.generation import GenerationRequest, open_generator
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.tensors import TensorBatch
from mlrl_core.models.smollm2 import prepare_smollm2

pytestmark = [pytest.mark.slow, pytest.mark.integration]

QUESTIONS = ("What is the capital of France?", "Write a Python program that prints the first ten squares.")


@pytest.mark.timeout(900)
def test_sampler_and_learner_agree(tmp_path: Path) -> None:
    """Four responses of up to 64 tokens under an adapter that is not the untouched one, in float32."""
    backbone = prepare_smollm2(cache_dir() / "models", lambda text: None)
    config = load_config(
        "smollm2",
        ["learner.autocast=false", "sampling.max_new_tokens=64", "sampling.temperature=0.7", "ppo.learning_rate=1e-3"],
    )
    engine = Engine(backbone, config)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in engine.network.trainable("policy").items():
            if ".lora_B." in name:
                weight.normal_(std=0.02)
    (tmp_path / "adapter").mkdir()
    engine.export_adapter(tmp_path / "adapter")

    tokenizer = load_tokenizer(backbone)
    prompts = [tuple(chat_prompt_ids(tokenizer, QUESTIONS[i % 2])) for i in range(4)]
    generator = open_generator(config, backbone, tmp_path / "run")
    generator.load_version(1, tmp_path / "adapter")
    requests = [GenerationRequest(f"s{i}", prompt, seed=i) for i, prompt in enumerate(prompts)]
    answers = sorted(generator.generate(requests, 1), key=lambda each: each.solution_id)
    generator.close()
    assert [each.policy_version for each in answers] == [1] * 4
    assert max(len(each.response_ids) for each in answers) > 16
    for answer in answers:
        ended = answer.response_ids[-1] == tokenizer.eos_token_id
        assert answer.finish_reason == ("stop" if ended else "length")
        assert ended or len(answer.response_ids) == 64

    rows = [
        BatchRow(a.solution_id, "none", p, a.response_ids, a.log_probs, 0.0, 1.0, 1.0, 1, "graded", a.finish_reason)
        for a, p in zip(answers, prompts, strict=True)
    ]
    batch = TensorBatch.of(rows)
    learned = engine.compute_log_probs(engine.deal(rows, range(4), batch), batch)
    untouched = engine.compute_log_probs(engine.deal(rows, range(4), batch), batch, "reference")
    mask = batch.response_mask.bool()
    gaps = (learned - batch.rollout_log_probs).abs()[mask]
    assert gaps.max() < 1e-3
    assert (untouched - batch.rollout_log_probs).abs()[mask].mean() > 1e-2  # the adapter is what agrees
