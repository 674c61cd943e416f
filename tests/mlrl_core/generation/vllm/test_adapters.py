"""What no server may see is refused from the files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mlrl_core.errors import MlrlError
from mlrl_core.generation.vllm.adapters import check_adapter
from mlrl_core.generation.vllm.server import Adapter


def write(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **settings: object) -> Path:
    """An adapter's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 8, "bias": "none"} | settings))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    save_file(tensors or {name.format(each): torch.ones(8, 8) for each in "AB"}, folder / "adapter_model.safetensors")
    return folder


def test_plain_lora_is_served(tmp_path: Path) -> None:
    check_adapter(write(tmp_path), 8)
    check_adapter(tmp_path, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r": 16}, "rank 16, but the server takes 8"),
        ({"rank_pattern": {"q_proj": 32}}, "rank 32, but the server takes 8"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias = all"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_other_kinds_are_refused(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(MlrlError, match=message) as refused:
        check_adapter(write(tmp_path, **settings), 8)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_no_number_is_enough(tmp_path: Path, value: float) -> None:
    weight = torch.zeros(64, 64)
    weight[63, 63] = value
    with pytest.raises(MlrlError, match=r"q_proj\.lora_A\.weight is not finite"):
        check_adapter(write(tmp_path, {"layers.0.q_proj.lora_A.weight": weight}), 8)


@pytest.mark.parametrize("name", ["lm_head.lora_A.weight", "embed_tokens.lora_A.weight", "layers.0.q_proj.bias"])
def test_weights_that_would_be_left_out_silently_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MlrlError, match="does not serve right"):
        check_adapter(write(tmp_path, {name: torch.zeros(2, 2)}), 8)


def test_a_folder_that_is_no_adapter_is_one_line(tmp_path: Path) -> None:
    for spoil in ("", "{", '{"r": null}'):
        folder = write(tmp_path / "a")
        (folder / "adapter_config.json").write_text(spoil)
        with pytest.raises(MlrlError, match="not a readable adapter"):
            check_adapter(folder, 8)
    folder = write(tmp_path / "b")
    (folder / "adapter_model.safetensors").write_bytes(b"short")
    with pytest.raises(MlrlError, match="not a readable adapter"):
        check_adapter(folder, 8)


def test_a_canary_counts_at_the_temperature_of_prompts_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "00007" / "adapter")
    manifest = tmp_path / "00007" / "manifest.json"
    assert Adapter.of("run", 7, folder).canary is None
    values = {"canary_ids": [1, 2], "canary_log_probs": [-1.5]}
    manifest.write_text(json.dumps(values))
    assert Adapter.of("run", 7, folder).canary is None
    manifest.write_text(json.dumps(values | {"canary_temperature": 1.0}))
    adapter = Adapter.of("run", 7, folder)
    assert (adapter.name, adapter.canary) == ("run-v000007", ((1, 2), (-1.5,)))
    manifest.write_text("{}x")
    with pytest.raises(MlrlError, match="restore the folder"):
        Adapter.of("run", 7, folder)
