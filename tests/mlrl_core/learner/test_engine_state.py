"""What an engine saves and exports: training goes on bit-equal, others load the adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mlrl_core.errors import MlrlError
from mlrl_core.learner.engine import Engine
from tests.mlrl_core.learner.test_engine import LENGTHS, MakeConfig, MakeRows, same, weights


def test_a_saved_engine_goes_on_bit_equal(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, tmp_path: Path
) -> None:
    """Two steps after the reload: the first would look right even with a fresh optimiser."""
    engine = Engine(backbone, make_config())
    for seed in range(3):
        engine.update(make_rows(LENGTHS, seed=seed))
    engine.save(tmp_path / "state")
    expected = [engine.update(make_rows(LENGTHS, seed=seed)) for seed in (3, 4)]
    again = Engine(backbone, make_config("seed=0"))
    again.load(tmp_path / "state")
    assert again.version == 3
    actual = [again.update(make_rows(LENGTHS, seed=seed)) for seed in (3, 4)]
    for left, right in zip(expected, actual, strict=True):
        assert left["actor/grad_norm"] == right["actor/grad_norm"]
        assert left["critic/grad_norm"] == right["critic/grad_norm"]
    assert same(weights(engine, "policy"), weights(again, "policy"))
    assert same(weights(engine, "critic"), weights(again, "critic"))


def test_an_incomplete_state_is_refused(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlrl_core.learner import checkpoint

    engine = Engine(backbone, make_config())
    complete = checkpoint._tensors

    def lacking(engine: Engine) -> dict[str, torch.Tensor]:
        tensors = complete(engine)
        tensors.pop(max(tensors))  # one key of one optimiser
        return tensors

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_tensors", lacking)
        engine.save(tmp_path / "state")
    with pytest.raises(MlrlError, match="lacks 1 tensors"):
        engine.load(tmp_path / "state")
    with pytest.raises(MlrlError, match="no state to train on"):
        engine.load(tmp_path / "nothing")
    other = Engine(backbone, make_config("policy.lora.r=16"))
    engine.save(tmp_path / "whole")
    with pytest.raises(MlrlError, match=r"policy\.lora"):
        other.load(tmp_path / "whole")


def test_the_exported_adapter_is_the_policy(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    engine = Engine(backbone, make_config())
    engine.update(make_rows(LENGTHS))
    engine.export_adapter(tmp_path / "adapter")
    assert {p.name for p in (tmp_path / "adapter").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(backbone), tmp_path / "adapter")
    ids, log_probs = engine.canary()
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], -1)
    expected = table[:-1].gather(1, torch.tensor(ids)[1:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(log_probs), expected, rtol=0, atol=1e-5)
