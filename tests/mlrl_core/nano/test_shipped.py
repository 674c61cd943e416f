"""The policy that ships is the one that its recipe makes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM

from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens, load_tokenizer
from mlrl_core.agent.prompts import solve_prompt
from mlrl_core.competitions import Competition, prepare_competition
from mlrl_core.config import load_config
from mlrl_core.nano import prepare
from mlrl_core.nano.facts import read_facts
from mlrl_core.nano.grammar import write_demonstration
from mlrl_core.nano.shipped import shipped_dir

HELD_OUT = 64


@pytest.fixture(scope="module")
def diamonds(tmp_path_factory: pytest.TempPathFactory) -> Competition:
    return prepare_competition("diamonds", tmp_path_factory.mktemp("data"))


def no_building(text: str) -> None:
    pytest.fail(f"the shipped policy was not used, the profile, the grammar or the model has changed: {text}")


def held_out_loss(folder: Path, competition: Competition) -> float:
    """Mean nats per response token over demonstrations that no warm start has seen."""
    config = load_config("nano")
    tokenizer = load_tokenizer(folder)
    prompt = solve_prompt(
        competition, "id,price", config.sandbox, config.prompt.max_tokens, lambda text: count_tokens(tokenizer, text)
    )
    prompt_ids = chat_prompt_ids(tokenizer, prompt)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rng, facts = Random(987654), read_facts(competition.id, competition.metric, competition.public_dir)
    nats, tokens = 0.0, 0
    for _ in range(HELD_OUT):
        response = [*tokenizer(write_demonstration(facts, rng).response)["input_ids"], tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt_ids, *response]])).logits[0, len(prompt_ids) - 1 : -1]
        nats += torch.nn.functional.cross_entropy(logits, torch.tensor(response), reduction="sum").item()
        tokens += len(response)
    return nats / tokens


def test_the_quickstart_unpacks_it(diamonds: Competition, tmp_path: Path) -> None:
    folder = prepare.prepare_nano(load_config("nano"), diamonds, diamonds.public_dir, tmp_path, no_building)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert 2_000_000 <= sum(p.numel() for p in model.parameters()) <= 5_000_000
    assert held_out_loss(folder, diamonds) < 0.14  # nats; the grammar's own entropy is about 0.1
    again = prepare.prepare_nano(load_config("nano"), diamonds, diamonds.public_dir, tmp_path, no_building)
    assert again == folder


def test_it_is_small() -> None:
    assert sum(f.stat().st_size for f in shipped_dir().iterdir()) < 10_000_000


def test_another_recipe_is_built_and_kept(diamonds: Competition, tmp_path: Path) -> None:
    config = load_config("nano", ["warmstart.demonstrations=48", "warmstart.epochs=1"])
    said: list[str] = []
    folder = prepare.prepare_nano(config, diamonds, diamonds.public_dir, tmp_path, said.append)
    assert any(text.startswith("warm start: step") for text in said)
    assert json.loads((folder / "warmstart.json").read_text())["demonstrations"] == 48
    assert prepare.prepare_nano(config, diamonds, diamonds.public_dir, tmp_path, no_building) == folder
    assert [f.name for f in tmp_path.iterdir()] == [folder.name]  # nothing half built is left


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_its_recipe_makes_it_again(diamonds: Competition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the same bits (they depend on the processor), but a policy that knows the demonstrations as well."""
    monkeypatch.setattr(prepare, "unpack_shipped", lambda recipe, target: False)
    rebuilt = prepare.prepare_nano(load_config("nano"), diamonds, diamonds.public_dir, tmp_path, lambda text: None)
    monkeypatch.undo()
    unpacked = prepare.prepare_nano(
        load_config("nano"), diamonds, diamonds.public_dir, tmp_path / "shipped", no_building
    )
    assert held_out_loss(rebuilt, diamonds) == pytest.approx(held_out_loss(unpacked, diamonds), abs=0.01)
