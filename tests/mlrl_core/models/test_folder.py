"""A wrong model folder is refused in one line before anything loads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlrl_core.agent.policy import check_policy
from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.models.folder import check_model_folder, context_of

TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "<end>": 1}, "unk_token": "[UNK]"},
}


def _folder(path: Path, *, model_type: str = "llama", weights: bool = True, end: str | None = "<end>") -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": model_type}))
    if weights:
        (path / "model.safetensors").write_bytes(b"")
    (path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **({"eos_token": end} if end else {})}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def _refusal(folder: Path) -> str:
    with pytest.raises(MlrlError) as refused:
        check_model_folder("given", folder, lambda text: None)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_whole_folder_passes_and_a_missing_chat_template_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    check_model_folder("given", _folder(tmp_path / "m"), said.append)
    assert len(said) == 1
    assert "no chat template" in said[0]


def test_folder_without_config(tmp_path: Path) -> None:
    assert "no config.json" in _refusal(tmp_path)


def test_unreadable_config(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m")
    (folder / "config.json").write_text("{")
    assert "can't read its config.json" in _refusal(folder)


def test_unknown_kind_of_model(tmp_path: Path) -> None:
    assert "can't read its config.json" in _refusal(_folder(tmp_path / "m", model_type="no-such-kind"))


def test_encoder_decoder_is_no_causal_model(tmp_path: Path) -> None:
    assert "a t5 model is no causal language model" in _refusal(_folder(tmp_path / "m", model_type="t5"))


def test_folder_without_weights(tmp_path: Path) -> None:
    assert "no weights" in _refusal(_folder(tmp_path / "m", weights=False))


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "tokenizer" in _refusal(folder)


def test_tokenizer_without_end_token(tmp_path: Path) -> None:
    assert "names no end token" in _refusal(_folder(tmp_path / "m", end=None))


def test_model_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    config = load_config("paper", ["policy.model=nobody/no-such-model"])
    with pytest.raises(MlrlError, match=r"neither a folder nor in the hub's cache; fetch it with `hf download nobody/"):
        check_policy(config)


def test_a_context_that_is_too_short_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 512}')
    assert context_of(load_config("nano", ["prompt.max_tokens=256", "sampling.max_new_tokens=256"]), tmp_path) == 512
    with pytest.raises(MlrlError, match="= 513, but the model's context is 512 tokens: lower one of them"):
        context_of(load_config("nano", ["prompt.max_tokens=256", "sampling.max_new_tokens=257"]), tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert context_of(load_config("nano", []), tmp_path) is None


@pytest.mark.parametrize(("model", "context"), [("nano", 1024), ("smollm2", 8192)])
def test_the_doctor_knows_the_context_of_what_is_not_there_yet(model: str, context: int) -> None:
    check_policy(load_config(model))
    with pytest.raises(MlrlError, match=f"but the model's context is {context} tokens"):
        check_policy(load_config(model, [f"sampling.max_new_tokens={context}"]))
