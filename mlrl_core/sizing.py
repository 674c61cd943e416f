"""What a run needs of a machine, reckoned from the model's shape; ``mlrl doctor`` and docs/gpu.md use these formulas.

None of the figures here is a measurement on a GPU. They err on the large side.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.learner.versions import KEEP_EVERY, KEEP_STATES

GB = 2**30
_BYTES = {"float32": 4, "bfloat16": 2}
_FP32 = 4
_SLOTS = 3  # adapters that a server holds
_CONTEXT_GB = 1.5  # of a CUDA process before anything is loaded
_LOGIT_POSITIONS = 2048  # whose log-softmax is in memory at once, in fp32, about three times


@dataclass(frozen=True, slots=True)
class ModelShape:
    """As in ``config.json`` of transformers."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @classmethod
    def read(cls, folder: Path) -> ModelShape:
        """Raises MlrlError when the folder's ``config.json`` has no such fields."""
        try:
            raw = json.loads((folder / "config.json").read_text())
            hidden, heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
            return cls(
                hidden=hidden,
                intermediate=int(raw["intermediate_size"]),
                layers=int(raw["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(raw.get("num_key_value_heads") or heads),
                head_dim=int(raw.get("head_dim") or hidden // heads),
                vocabulary=int(raw["vocab_size"]),
                tied=bool(raw.get("tie_word_embeddings", False)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MlrlError(f"{folder}: config.json can't be read as a decoder's ({error})") from None

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of the matrices of one layer."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def parameters(self) -> int:
        """Weights of matrices and embeddings; norms and biases are left out."""
        layer = sum(rows * columns for rows, columns in self.projections.values())
        return self.layers * layer + self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2


# By their config.json.
QWEN25_3B = ModelShape(2048, 11008, 36, 16, 2, 128, 151936, True)
QWEN25_15B = ModelShape(1536, 8960, 28, 12, 2, 128, 151936, True)
SMOLLM2 = ModelShape(576, 1536, 30, 9, 3, 64, 49152, True)
_KNOWN = {
    "Qwen/Qwen2.5-3B-Instruct": QWEN25_3B,
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN25_15B,
    "smollm2": SMOLLM2,
}


@dataclass(frozen=True, slots=True)
class Needs:
    """In GiB. ``learner`` is of each rank's device, ``server`` the least of each server's share of its GPU
    (``generation.gpu_memory_share``), with room for 16 responses at once; ``disk`` is of one run's versions, without
    the model."""

    model: float
    learner: float
    server: float
    disk: float


def lora_parameters(shape: ModelShape, r: int, targets: tuple[str, ...]) -> int:
    """Parameters of one adapter: r (inputs + outputs) for each matrix that it is on."""
    return shape.layers * sum(r * sum(shape.projections[name]) for name in targets if name in shape.projections)


def needs_of(config: RunConfig, shape: ModelShape) -> Needs:
    """What ``config`` needs with a model of ``shape``."""
    width = _BYTES[config.policy.dtype]
    weights = shape.parameters * width
    adapter = lora_parameters(shape, config.policy.lora.r, config.policy.lora.target_modules)
    ranks, tokens = config.learner.ranks, config.ppo.micro_batch_tokens
    adapters = 2 if config.ppo.advantage == "gae" else 1
    # Weight, gradient and Adam's two moments of what is trained; a layer's gathered weights, twice.
    sharded = (weights + 2 * adapter * _FP32 + adapters * adapter * 3 * _FP32) / ranks
    gathered = 2 * sum(a * b for a, b in shape.projections.values()) * width if ranks > 1 else 0
    kept = tokens * shape.hidden * width * shape.layers
    one_layer = tokens * width * (10 * shape.hidden + 4 * shape.intermediate)
    activations = kept + one_layer if config.learner.gradient_checkpointing else one_layer * shape.layers
    logits = 3 * min(tokens, _LOGIT_POSITIONS) * shape.vocabulary * _FP32
    learner = (sharded + gathered + activations + logits) / GB + _CONTEXT_GB
    context = config.prompt.max_tokens + config.sampling.max_new_tokens
    served = weights + _SLOTS * adapter * width + 16 * context * shape.kv_bytes_per_token
    server = served / GB + _CONTEXT_GB + 2
    versions = config.steps + 1
    states = KEEP_STATES + math.ceil(versions / KEEP_EVERY)
    disk = (versions * adapter * _FP32 + states * 2 * adapter * 3 * _FP32) / GB
    return Needs(weights / GB, learner, server, disk)


def shape_of(config: RunConfig) -> ModelShape | None:
    """The shape of the configured model, as far as it is known without fetching anything."""
    name = config.policy.model
    if name in _KNOWN:
        return _KNOWN[name]
    folder = Path(name).expanduser()
    return ModelShape.read(folder) if (folder / "config.json").is_file() else None
