"""What is trained and how it is sampled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mlrl_core.config.base import Section


class LoRAConfig(Section):
    """Low-rank adapters (peft) of the policy and the critic. Ranks are those a vLLM server can serve."""

    r: Literal[8, 16, 32, 64, 128] = 64
    alpha: int = Field(128, ge=1)
    target_modules: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )


class PolicyConfig(Section):
    """``model`` is ``nano`` (built and warm-started here, no download) or a folder or hub id for transformers."""

    model: str = "Qwen/Qwen2.5-3B-Instruct"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    lora: LoRAConfig = LoRAConfig()


class PromptConfig(Section):
    """Length of a prompt in tokens, chat template not counted. The description is cut first."""

    max_tokens: int = Field(2560, ge=32)


class SamplingConfig(Section):
    """Sampling of the policy. Top-p, top-k and penalties stay off in training: they would make the behaviour
    log-probabilities differ from the learner's (method.md section 7)."""

    temperature: float = Field(1.0, gt=0, le=2)
    max_new_tokens: int = Field(2500, ge=1)


class GenerationConfig(Section):
    """``batch_size`` is how many responses one in-process forward pass samples side by side."""

    backend: Literal["transformers"] = "transformers"
    batch_size: int = Field(32, ge=1, le=1024)
    request_deadline_s: float = Field(600, gt=0)


class WarmstartConfig(Section):
    """Supervised fine-tuning on demonstrations that a grammar writes (nano only)."""

    demonstrations: int = Field(6000, ge=1)
    epochs: int = Field(2, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    threads: int = Field(0, ge=0)  # 0 = as torch finds them
    seed: int = 0
