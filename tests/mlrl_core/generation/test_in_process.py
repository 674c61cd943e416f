"""Sampling: the right distribution, the right log-probabilities, the right adapter, row by row."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaForCausalLM

from mlrl_core.config.policy import GenerationConfig, SamplingConfig
from mlrl_core.errors import MlrlError
from mlrl_core.generation.in_process import InProcessGenerator
from mlrl_core.generation.protocol import Generated, GenerationRequest
from tests.models import save_llama

VOCABULARY, END = 11, 1
PROMPTS = ((2, 3, 4), (5, 6), (7, 8, 9, 10, 2), (3,))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    ids = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": END}
    folder = tmp_path_factory.mktemp("backbone")
    return save_llama(folder, shape, tokenizer=False, tie_word_embeddings=False, initializer_range=0.3, **ids)


@pytest.fixture(scope="module")
def adapters(backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two different adapters of the backbone, as folders."""
    folders = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = LlamaForCausalLM.from_pretrained(backbone)
        lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
        folders.append(tmp_path_factory.mktemp(f"adapter{seed}"))
        get_peft_model(model, lora).save_pretrained(folders[-1])
    return folders


def generator(backbone: Path, temperature: float = 0.7, limit: int = 12, batch: int = 64) -> InProcessGenerator:
    sampling = SamplingConfig(temperature=temperature, max_new_tokens=limit)
    return InProcessGenerator(backbone, sampling, GenerationConfig(batch_size=batch), "float32")


def requests(count: int) -> list[GenerationRequest]:
    return [GenerationRequest(f"s{i}", PROMPTS[i % len(PROMPTS)], seed=100 + i) for i in range(count)]


def prompt_of(generated: Generated) -> tuple[int, ...]:
    return PROMPTS[int(generated.solution_id[1:]) % len(PROMPTS)]


def test_log_probs_are_those_of_a_full_forward_pass(backbone: Path, adapters: list[Path]) -> None:
    sampler = generator(backbone)
    sampler.load_version(1, adapters[0])
    reference = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(backbone), adapters[0]).eval()
    for result in sampler.generate(requests(16), 1):
        prompt = prompt_of(result)
        ids = torch.tensor([[*prompt, *result.response_ids]])
        with torch.no_grad():
            logits = reference(ids).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / 0.7, -1).gather(1, ids[0, len(prompt) :, None])[:, 0]
        assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-5)


def test_a_row_does_not_depend_on_what_is_sampled_beside_it(backbone: Path, adapters: list[Path]) -> None:
    together, alone = generator(backbone), generator(backbone, batch=1)
    together.load_version(0, adapters[0])
    alone.load_version(0, adapters[0])
    for one, other in zip(together.generate(requests(12), 0), alone.generate(requests(12), 0), strict=True):
        assert one.response_ids == other.response_ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_responses_end_where_the_policy_ends_them(backbone: Path, adapters: list[Path]) -> None:
    sampler = generator(backbone, limit=5)
    sampler.load_version(0, adapters[0])
    results = list(sampler.generate(requests(64), 0))
    assert {r.finish_reason for r in results} == {"stop", "length"}
    for result in results:
        assert END not in result.response_ids[:-1]
        assert (result.response_ids[-1] == END) == (result.finish_reason == "stop")
        assert len(result.response_ids) == len(result.log_probs)
        assert len(result.response_ids) == 5 or result.finish_reason == "stop"


def test_a_model_may_have_several_end_tokens(backbone: Path, adapters: list[Path], tmp_path: Path) -> None:
    shutil.copytree(backbone, tmp_path / "several")
    settings = json.loads((backbone / "config.json").read_text())
    (tmp_path / "several" / "config.json").write_text(json.dumps(settings | {"eos_token_id": [END, 4]}))
    sampler = generator(tmp_path / "several")
    sampler.load_version(0, adapters[0])
    results = list(sampler.generate(requests(64), 0))
    assert {r.response_ids[-1] for r in results if r.finish_reason == "stop"} == {END, 4}
    for result in results:
        assert not {END, 4} & set(result.response_ids[:-1])


def test_a_long_prompt_leaves_less_for_the_response(backbone: Path, adapters: list[Path]) -> None:
    """A chat template is not counted in prompt.max_tokens; beyond its context the model was never trained."""
    sampler = generator(backbone, limit=60)
    sampler.load_version(0, adapters[0])
    longest = 0
    for seed in range(24):
        (answer,) = sampler.generate([GenerationRequest("s", (3,) * 120, seed)], 0)
        longest = max(longest, len(answer.response_ids))
    assert longest == 8
    with pytest.raises(MlrlError, match="fills the model's context of 128 tokens"):
        list(sampler.generate([GenerationRequest("s", (3,) * 128, 0)], 0))


def test_first_tokens_follow_the_distribution(backbone: Path, adapters: list[Path]) -> None:
    """Chi-square with 10 degrees of freedom; 40 is exceeded with probability 2e-5, and the seeds are fixed."""
    count = 4000
    sampler = generator(backbone, limit=1, batch=1000)
    sampler.load_version(0, adapters[0])
    results = list(sampler.generate([GenerationRequest(f"s{4 * i}", PROMPTS[0], i) for i in range(count)], 0))
    model = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(backbone), adapters[0]).eval()
    with torch.no_grad():
        shares = torch.softmax(model(torch.tensor([PROMPTS[0]])).logits[0, -1] / 0.7, -1).tolist()
    seen = Counter(r.response_ids[0] for r in results)
    assert sum((seen[i] - count * p) ** 2 / (count * p) for i, p in enumerate(shares)) < 40
    for result in results[:50]:
        assert result.log_probs[0] == pytest.approx(math.log(shares[result.response_ids[0]]), abs=1e-5)


def test_going_back_to_a_version_gives_the_same_bits(backbone: Path, adapters: list[Path]) -> None:
    sampler = generator(backbone)
    sampler.load_version(0, adapters[0])
    before = list(sampler.generate(requests(8), 0))
    sampler.load_version(1, adapters[1])
    between = list(sampler.generate(requests(8), 1))
    sampler.load_version(2, adapters[0])
    after = list(sampler.generate(requests(8), 2))
    assert [(r.response_ids, r.log_probs) for r in before] == [(r.response_ids, r.log_probs) for r in after]
    assert [r.log_probs for r in before] != [r.log_probs for r in between]


def test_another_version_than_the_loaded_one_is_refused(backbone: Path, adapters: list[Path]) -> None:
    sampler = generator(backbone)
    with pytest.raises(ValueError, match="version 0"):
        list(sampler.generate(requests(1), 0))
    sampler.load_version(3, adapters[0])
    with pytest.raises(ValueError, match=r"version 2 .* version 3"):
        list(sampler.generate(requests(1), 2))


def test_a_folder_without_an_adapter_is_named(backbone: Path, tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="not a readable adapter folder"):
        generator(backbone).load_version(0, tmp_path)
