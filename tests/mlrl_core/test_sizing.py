"""The reckoning, against figures worked out by hand from the models' published shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.sizing import QWEN25_3B, SMOLLM2, ModelShape, lora_parameters, needs_of, shape_of


def test_shape_of_the_papers_model() -> None:
    # Per layer 2048 x (2048 + 256 + 256 + 2048) + 3 x 2048 x 11008; embeddings 151936 x 2048.
    assert QWEN25_3B.parameters == 36 * (9_437_184 + 67_633_152) + 311_164_928
    assert QWEN25_3B.kv_bytes_per_token == 36_864
    # 64 x 36 x (4096 + 2304 + 2304 + 4096 + 3 x 13056)
    assert lora_parameters(QWEN25_3B, 64, load_config("paper").policy.lora.target_modules) == 119_734_272


def test_needs_follow_the_configuration() -> None:
    one = needs_of(load_config("paper"), QWEN25_3B)
    assert one.model == pytest.approx(5.75, abs=0.01)
    assert needs_of(load_config("paper", ["learner.ranks=2"]), QWEN25_3B).learner > one.learner
    assert needs_of(load_config("paper", ["learner.gradient_checkpointing=false"]), QWEN25_3B).learner > 5 * one.learner
    # 101 adapters of 0.446 GiB and 14 states of 2 x 3 x 0.446 GiB
    assert one.disk == pytest.approx(119_734_272 * 4 / 2**30 * (101 + 14 * 6), rel=1e-6)


def test_smollm2_has_as_many_weights_as_its_file() -> None:
    norms = 61 * 576
    assert SMOLLM2.parameters + norms == 134_515_008


def test_shape_comes_from_the_folder(tmp_path: Path) -> None:
    config = load_config("smollm2", [f"policy.model={tmp_path}"])
    assert shape_of(config) is None
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    with pytest.raises(MlrlError, match=r"config\.json can't be read"):
        shape_of(config)
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "num_hidden_layers": 2, '
        '"vocab_size": 100}'
    )
    assert shape_of(config) == ModelShape(64, 96, 2, 4, 4, 16, 100, False)
