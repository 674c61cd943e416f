"""One frozen backbone that acts as three networks: policy, critic and reference (learner.md 5).

The policy and the critic are two LoRA adapters on it, the critic with an fp32 value head; the reference is the backbone
with adapters off. Each role is a forward pass of its own, so a critic's gradient never reaches the policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.learner import attention
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.packing import Pack, pack_rows
from mlrl_core.learner.ranks import Ranks
from mlrl_core.ppo.log_probs import token_log_probs

Role = Literal["policy", "critic", "reference"]
Trained = Literal["policy", "critic"]
ADAPTERS = ("policy", "critic")
CHECK_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}  # of the worst single token
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TokenScores(NamedTuple):
    """Of the M response tokens of a pack, fp32."""

    log_probs: Tensor
    entropy: Tensor


class Network(nn.Module):
    """``peft_model`` has the adapters of ADAPTERS; policy is the active one whenever no role is being played."""

    def __init__(self, backbone_dir: Path, config: RunConfig, ranks: Ranks) -> None:
        """On ``ranks.device``, sharded over the ranks when there are several (FSDP2: a group per decoder layer, the
        head, the rest).

        Raises MlrlError when the folder holds no causal language model, or one that packs can't be trained on.
        """
        super().__init__()
        self.peft_model = _load(backbone_dir, config)
        self.temperature = config.sampling.temperature
        self.autocast = config.learner.autocast
        self.checkpointing = config.learner.gradient_checkpointing
        if self.checkpointing:
            self.peft_model.get_base_model().gradient_checkpointing_enable({"use_reentrant": False})
        self.entropy_grad = config.ppo.entropy_coef > 0
        causal = self.peft_model.get_base_model()
        self.value_head = nn.Linear(causal.config.hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.eval()  # no dropout anywhere, in training neither
        self.to(ranks.device)
        self._play("policy")
        self._check_architecture(backbone_dir, config)
        if ranks.world > 1:
            self._shard(ranks)

    def forward(self, pack: Pack, role: Role) -> TokenScores | Tensor:
        """TokenScores for ``policy`` and ``reference``, values [M] for ``critic`` (the value before each token).

        Call it inside ``acting(role)``.
        """
        causal = self.peft_model.get_base_model()
        decoder = causal.get_decoder()
        for layer in decoder.layers:
            # transformers checkpoints what is in training mode: the layer alone, so that no dropout wakes up in it.
            layer.training = self.checkpointing and torch.is_grad_enabled()
        with torch.autocast(pack.input_ids.device.type, torch.bfloat16, enabled=self.autocast):
            hidden = decoder(
                input_ids=pack.input_ids,
                position_ids=pack.position_ids,
                # A mask of rank 4 is taken as it is: the layout alone says who attends to whom.
                attention_mask=pack.input_ids.new_zeros((1, 1, 1, 1)),
                use_cache=False,
                packed=pack.layout,
            ).last_hidden_state[0]
        for layer in decoder.layers:
            layer.training = False  # else sampling would lose its cache
        hidden = hidden.index_select(0, pack.predictors)
        if role == "critic":
            return self.value_head(hidden.float()).squeeze(-1)
        weight = causal.get_output_embeddings().weight
        hidden = hidden.to(weight.dtype)
        scores = token_log_probs(hidden, weight, pack.targets, self.temperature, entropy_grad=self.entropy_grad)
        return TokenScores(*scores)

    @torch.no_grad()
    def _check_architecture(self, backbone_dir: Path, config: RunConfig) -> None:
        """A pack must give what the model's own forward gives: no windowed attention, nothing done to logits."""
        causal = self.peft_model.get_base_model()
        kinds = set(getattr(causal.config, "layer_types", None) or ()) - {"full_attention"}
        if kinds:
            raise MlrlError(f"{backbone_dir}: layers with {min(kinds)} can't be trained in packs; take another model")
        ids = [(7 * i + 1) % causal.config.vocab_size for i in range(8)]
        prompt, answers = tuple(ids[:3]), (tuple(ids[3:6]), tuple(ids[6:]))
        rows = [
            BatchRow(str(i), "", prompt, answer, (0.0,) * len(answer), 0, 0, 1, 0, "graded", "stop")
            for i, answer in enumerate(answers)
        ]
        (pack,) = pack_rows(rows, range(len(rows)), 3, 1000)
        with self.acting("reference"):
            device = self.value_head.weight.device
            packed = self(pack.to(device), "reference").log_probs
            plain = []
            for answer in answers:
                logits = self.peft_model(input_ids=torch.tensor([[*prompt, *answer]], device=device)).logits[0]
                table = torch.log_softmax(logits[len(prompt) - 1 : -1].float() / self.temperature, -1)
                plain.append(table.gather(1, torch.tensor(answer, device=device)[:, None])[:, 0])
        gap = (packed - torch.cat(plain)).abs().max().item()
        if not gap < CHECK_TOLERANCE["bfloat16" if self.autocast else config.policy.dtype]:
            raise MlrlError(
                f"{backbone_dir}: packed log-probabilities differ from the model's own by {gap:.2g}: its architecture "
                f"({causal.config.model_type}) can't be trained here; take another model"
            )

    def _shard(self, ranks: Ranks) -> None:
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        for layer in self.peft_model.get_base_model().get_decoder().layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.value_head, mesh=mesh)
        fully_shard(self, mesh=mesh)

    @contextmanager
    def acting(self, role: Role) -> Iterator[None]:
        """Play ``role`` inside, the policy afterwards. The only place that switches adapters."""
        self._play(role)
        try:
            yield
        finally:
            self._play("policy")

    def _play(self, role: Role) -> None:
        tuner = self.peft_model.base_model
        if role == "reference":
            tuner.disable_adapter_layers()
        else:
            tuner.enable_adapter_layers()
            self.peft_model.set_adapter(role)
        # peft freezes whatever isn't active; an optimiser or a checkpoint built then would miss half of the parameters.
        for parameter in self.trainable().values():
            parameter.requires_grad_(True)

    def trainable(self, role: Trained | None = None) -> dict[str, nn.Parameter]:
        """Name to parameter of what ``role`` trains (both roles by default)."""
        roles = (role,) if role else ADAPTERS
        return {
            name: parameter
            for name, parameter in self.named_parameters()
            if any(f".lora_A.{r}." in name or f".lora_B.{r}." in name for r in roles)
            or ("critic" in roles and name.startswith("value_head."))
        }

    def export_adapter(self, folder: Path, ranks: Ranks) -> None:
        """Write the policy's adapter into ``folder`` as ``adapter_config.json`` and ``adapter_model.safetensors``, with
        no adapter name in the keys: what peft and a vLLM server load. All ranks gather, the first one writes."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        tensors = get_peft_model_state_dict(self.peft_model, adapter_name="policy", save_embedding_layers=False)
        plain = {name: whole(tensor.detach()).cpu().contiguous() for name, tensor in tensors.items()}
        if ranks.rank:
            return
        folder.mkdir(parents=True, exist_ok=True)
        save_file(plain, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        settings = self.peft_model.peft_config["policy"].to_dict()
        settings = {key: sorted(value) if isinstance(value, set) else value for key, value in settings.items()}
        settings["inference_mode"] = True
        (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True, default=str))


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one (a collective), or the tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _load(backbone_dir: Path, config: RunConfig) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            backbone_dir, dtype=DTYPES[config.policy.dtype], attn_implementation=attention.NAME, local_files_only=True
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MlrlError(f"{backbone_dir}: can't be loaded as a causal language model ({reason})") from None
    model.requires_grad_(False)

    def lora() -> LoraConfig:
        return LoraConfig(
            r=config.policy.lora.r,
            lora_alpha=config.policy.lora.alpha,
            target_modules=list(config.policy.lora.target_modules),
            bias="none",
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # the adapters' A matrices
        peft_model = get_peft_model(model, lora(), adapter_name="policy")
        peft_model.add_adapter("critic", lora())
    for adapter in peft_model.peft_config.values():
        adapter.base_model_name_or_path = config.policy.model
    return peft_model
