"""Packs give what plain forwards give, and the three roles stay out of each other's way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.network import Network
from mlrl_core.learner.packing import pack_rows
from mlrl_core.learner.ranks import Ranks
from mlrl_core.learner.tensors import TensorBatch

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]
LENGTHS = [5, 1, 0, 12, 2, 7, 7]


def perturb(network: Network) -> None:
    """Adapters as if they had been trained: peft starts them as exact zeros."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.trainable().values():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)


def plain_log_probs(network: Network, row: BatchRow, temperature: float) -> torch.Tensor:
    """One row, alone, through the model's own forward."""
    ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
    logits = network.peft_model(input_ids=ids).logits[0].float() / temperature
    table = torch.log_softmax(logits, -1)
    predicted = table[len(row.prompt_ids) - 1 : -1]
    return predicted.gather(1, torch.tensor(row.response_ids, dtype=torch.long)[:, None])[:, 0]


@pytest.mark.parametrize("budget", [1, 20, 10_000])
@pytest.mark.parametrize("prompts", [1, 3])
def test_packed_log_probs_equal_plain_forwards(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, budget: int, prompts: int
) -> None:
    config = make_config()
    engine = Engine(backbone, config)
    perturb(engine.network)
    rows = make_rows(LENGTHS, prompts=prompts)
    batch = TensorBatch.of(rows)
    packs = pack_rows(rows, range(len(rows)), max(LENGTHS), budget)
    for role in ("policy", "reference"):
        packed = engine.compute_log_probs(packs, batch, role)  # type: ignore[arg-type]
        with engine.network.acting(role), torch.no_grad():  # type: ignore[arg-type]
            for i, row in enumerate(rows):
                if row.response_ids:
                    expected = plain_log_probs(engine.network, row, config.sampling.temperature)
                    torch.testing.assert_close(packed[i, : len(row.response_ids)], expected, rtol=0, atol=2e-5)
                assert packed[i, len(row.response_ids) :].eq(0).all()


def test_packed_gradients_equal_plain_gradients(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    network = Network(backbone, make_config(), Ranks.alone())
    perturb(network)
    rows = make_rows(LENGTHS, prompts=2)
    gradients = []
    for packed in (True, False):
        network.zero_grad()
        with network.acting("policy"):
            if packed:
                for pack in pack_rows(rows, range(len(rows)), max(LENGTHS), 25):
                    network(pack, "policy").log_probs.sin().sum().backward()
            else:
                for row in rows:
                    if row.response_ids:
                        plain_log_probs(network, row, network.temperature).sin().sum().backward()
        gradients.append({n: p.grad.clone() for n, p in network.trainable("policy").items() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() == network.trainable("policy").keys()
    packed_all, plain_all = (torch.cat([g.flatten() for g in part.values()]) for part in gradients)
    assert (packed_all - plain_all).norm() < 1e-5 * plain_all.norm()


def test_gradient_checkpointing_recomputes_the_same_gradients(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    rows = make_rows(LENGTHS, prompts=2)
    (pack,) = pack_rows(rows, range(len(rows)), max(LENGTHS), 1000)
    gradients, calls = [], []
    for switch in ("false", "true"):
        network = Network(backbone, make_config(f"learner.gradient_checkpointing={switch}"), Ranks.alone())
        perturb(network)
        layer = network.peft_model.get_base_model().get_decoder().layers[0].mlp
        count = [0]
        layer.register_forward_pre_hook(lambda *_, count=count: count.__setitem__(0, count[0] + 1))
        with network.acting("policy"):
            network(pack, "policy").log_probs.sin().sum().backward()
        gradients.append({name: p.grad for name, p in network.trainable("policy").items()})
        calls.append(count[0])
        assert not any(module.training for module in network.modules())
    assert calls == [1, 2]
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-6, atol=1e-6)


def test_packing_shares_prompts_and_keeps_to_the_budget(make_rows: MakeRows) -> None:
    rows = make_rows(LENGTHS, prompts=1)
    prompt = len(rows[0].prompt_ids)
    (pack,) = pack_rows(rows, range(len(rows)), max(LENGTHS), 10_000)
    fed = sum(max(length - 1, 0) for length in LENGTHS)
    assert pack.tokens == prompt + fed
    assert pack.targets.numel() == sum(LENGTHS)
    parts = pack_rows(rows, range(len(rows)), max(LENGTHS), prompt + 11)
    assert [p.tokens <= prompt + 11 for p in parts] == [True] * len(parts)
    slots = torch.cat([p.slots for p in parts])
    assert sorted(slots.tolist()) == sorted(pack.slots.tolist())


def test_each_role_trains_its_own_parameters_only(backbone: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    network = Network(backbone, make_config(), Ranks.alone())
    perturb(network)
    rows = make_rows([4, 3])
    (pack,) = pack_rows(rows, [0, 1], 4, 1000)
    for role, other in (("policy", "critic"), ("critic", "policy")):
        network.zero_grad(set_to_none=True)
        with network.acting(role):  # type: ignore[arg-type]
            out = network(pack, role)  # type: ignore[arg-type]
            (out.log_probs if role == "policy" else out).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.trainable(role).values())  # type: ignore[arg-type]
        assert all(p.grad is None for p in network.trainable(other).values())  # type: ignore[arg-type]
        trained = set(network.trainable())
        assert all(p.grad is None for n, p in network.named_parameters() if n not in trained)


def test_all_trainable_parameters_survive_any_order_of_roles(backbone: Path, make_config: MakeConfig) -> None:
    network = Network(backbone, make_config(), Ranks.alone())
    names = set(network.trainable())
    assert len(names) == 2 * (2 * 7 * 2) + 2  # adapters x (layers x modules x A, B) + head
    for role in ("critic", "reference", "policy", "reference", "reference", "critic"):
        with network.acting(role):  # type: ignore[arg-type]
            pass
        assert {n for n, p in network.named_parameters() if p.requires_grad} == names
        assert network.peft_model.active_adapter == "policy"


def test_a_folder_without_a_model_is_refused_in_one_line(tmp_path: Path, make_config: MakeConfig) -> None:
    with pytest.raises(MlrlError, match="can't be loaded") as error:
        Network(tmp_path, make_config(), Ranks.alone())
    assert "\n" not in str(error.value)


def test_an_architecture_that_packs_would_get_wrong_is_refused(
    backbone: Path, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    forward = LlamaForCausalLM.forward

    def softcapped(self: LlamaForCausalLM, *args: Any, **kwargs: Any) -> Any:
        out = forward(self, *args, **kwargs)
        out.logits = 3 * torch.tanh(out.logits / 3)  # as some models do
        return out

    with monkeypatch.context() as patch:
        patch.setattr(LlamaForCausalLM, "forward", softcapped)
        with pytest.raises(MlrlError, match="differ from the model's own"):
            Network(backbone, make_config(), Ranks.alone())
    shutil.copytree(backbone, tmp_path / "windowed")
    settings = json.loads((backbone / "config.json").read_text())
    settings["layer_types"] = ["full_attention", "sliding_attention"]
    (tmp_path / "windowed" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(MlrlError, match="sliding_attention can't be trained in packs"):
        Network(tmp_path / "windowed", make_config(), Ranks.alone())
