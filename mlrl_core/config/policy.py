"""What is trained and how it is sampled."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from mlrl_core.config.base import Section

_LAST_PORT = 65535
_CORES = r"[0-9]{1,4}(-[0-9]{1,4})?"
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_SERVER = re.compile(
    rf"https?://{_LABEL}(\.{_LABEL})*(:[0-9]{{1,5}})?/?|cuda:(0|[1-9][0-9]{{0,2}})|cpu(:{_CORES}(,{_CORES})*)?"
)


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
    """``model`` is ``nano`` (built and warm-started here, no download), ``smollm2`` (SmolLM2-135M-Instruct from a
    Python package), or a folder or hub id for transformers."""

    model: str = "Qwen/Qwen2.5-3B-Instruct"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    lora: LoRAConfig = LoRAConfig()


class PromptConfig(Section):
    """Length of a prompt in tokens, chat template not counted; what is cut first is fixed (``agent/prompts.py``).

    ``contents``: ``short`` is the task and the description alone, ``full`` adds sample rows, packages and a preview of
    the data (at most ``preview_tokens``, 0 = none); ``auto`` is short for a policy with a warm start, which knows its
    task, and full for any other.
    """

    max_tokens: int = Field(2560, ge=32)
    contents: Literal["auto", "short", "full"] = "auto"
    preview_tokens: int = Field(600, ge=0)


class ImproveConfig(Section):
    """Self-improvement (method.md section 5). ``episode = independent``: with ``improve_prob`` a prompt asks for a
    better version of an earlier, graded program of the same competition, where there is one: the last of the same slot,
    the best of the run, or one of the ``top_k`` best. ``two_step``: an episode is a solution and then, whatever came of
    it, its improvement, and the solution is credited with both; half of all prompts improve. ``show_milestones`` tells
    which milestones the earlier program reached."""

    episode: Literal["independent", "two_step"] = "independent"
    improve_prob: float = Field(0.5, ge=0, le=1)
    improve_source: Literal["slot_last_valid", "best", "top_k"] = "slot_last_valid"
    top_k: int = Field(16, ge=1)
    show_milestones: bool = True

    @property
    def actions(self) -> int:
        """Solutions of one episode."""
        return 2 if self.episode == "two_step" else 1

    @model_validator(mode="after")
    def _nothing_is_without_effect(self) -> ImproveConfig:
        if self.episode == "two_step" and self.improve_prob != 0.5:
            raise ValueError(
                f"improve_prob = {self.improve_prob:g}, but with episode = two_step every solution is improved once, "
                "half of all prompts: set it to 0.5"
            )
        if self.episode == "two_step" and self.improve_source != "slot_last_valid":
            raise ValueError(
                f"improve_source = {self.improve_source}, but with episode = two_step a solution of the same episode "
                "is improved: set it to slot_last_valid"
            )
        return self


class SamplingConfig(Section):
    """Sampling of the policy. Top-p, top-k and penalties stay off in training: they would make the behaviour
    log-probabilities differ from the learner's (method.md section 7)."""

    temperature: float = Field(1.0, gt=0, le=2)
    max_new_tokens: int = Field(2500, ge=1)


class GenerationConfig(Section):
    """Where responses are sampled: ``transformers`` in this process, or ``vllm``, by servers.

    ``batch_size`` is how many responses one in-process forward pass samples side by side; the rest is for ``vllm``.
    ``servers``: one entry each, ``cuda:0`` (counted among the devices that the run sees), ``cpu`` or ``cpu:0-3`` (these
    cores) for one that the run starts and ends, or the URL of one that it uses as it finds it; none = one on the CPU.
    ``port`` is the first one's, the others follow; 0 = any. ``python`` is the interpreter with vLLM (empty: what
    `make vllm` has made); ``command`` stands for interpreter and module together, in a container for example. ``dtype``
    empty = the policy's. ``max_in_flight`` is of one server. ``gpu_memory_share`` is what a server takes of its GPU:
    less where another program uses it as well.
    """

    backend: Literal["transformers", "vllm"] = "transformers"
    batch_size: int = Field(32, ge=1, le=1024)
    request_deadline_s: float = Field(600, gt=0)
    servers: tuple[str, ...] = ()
    port: int = Field(0, ge=0, le=_LAST_PORT)
    python: str = ""
    command: tuple[str, ...] = ()
    dtype: Literal["", "float32", "bfloat16"] = ""
    kv_cache_gb: float = Field(2.0, ge=1)  # on the CPU
    gpu_memory_share: float = Field(0.9, gt=0, le=1)
    max_in_flight: int = Field(64, ge=1, le=1024)
    start_deadline_s: float = Field(300, gt=0)

    @field_validator("servers")
    @classmethod
    def _known_places(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for each in servers:
            if not _SERVER.fullmatch(each):
                raise ValueError(f"'{each}' is no server: write cuda:0, cpu, cpu:0-3 or a URL such as http://host:8000")
            kind, _, part = each.partition(":")
            if kind == "cpu" and part and not cores_of(part):
                raise ValueError(f"'{each}' names no cores: write them as cpu:0-3 or cpu:0,2,4-7")
            port = re.search(r":([0-9]+)/?$", each) if kind.startswith("http") else None
            if port and not 0 < int(port[1]) <= _LAST_PORT:
                raise ValueError(f"'{each}': ports are 1 to {_LAST_PORT}")
        if len({each.rstrip("/") for each in servers}) < len(servers):
            raise ValueError(f"{list(servers)} names a device or server twice: leave one out")
        on_cpu = [each.partition(":")[2] for each in servers if each.startswith("cpu")]
        cores = [core for part in filter(None, on_cpu) for core in cores_of(part)]
        if len(on_cpu) > 1 and ("" in on_cpu or len(set(cores)) < len(cores)):
            raise ValueError(f"{list(servers)} gives cores to two servers: write those of each, as cpu:0-3 and cpu:4-7")
        return servers

    @model_validator(mode="after")
    def _ports_exist(self) -> GenerationConfig:
        if self.port and self.port + max(1, len(self.servers)) - 1 > _LAST_PORT:
            raise ValueError(
                f"port = {self.port} is the first of {len(self.servers)} servers' and there is none above {_LAST_PORT}"
            )
        return self

    @property
    def pass_deadline_s(self) -> float:
        """For one pass over a wave; a server may have to be started anew meanwhile, and a request repeated."""
        if self.backend == "transformers":
            return self.request_deadline_s
        return 2 * self.request_deadline_s + self.start_deadline_s


def cores_of(part: str) -> list[int]:
    """The numbers in ``0,2,4-7``, as they stand; none where a range goes backwards."""
    cores: list[int] = []
    for piece in part.split(","):
        first, _, last = piece.partition("-")
        if int(last or first) < int(first):
            return []
        cores += range(int(first), int(last or first) + 1)
    return cores


class WarmstartConfig(Section):
    """Supervised fine-tuning on demonstrations that a grammar writes: of all weights of the nano policy, of an adapter
    that is then merged for any other. ``demonstrations`` 0 = none."""

    demonstrations: int = Field(0, ge=0)
    epochs: int = Field(2, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    threads: int = Field(0, ge=0)  # 0 = as torch finds them
    seed: int = 0
