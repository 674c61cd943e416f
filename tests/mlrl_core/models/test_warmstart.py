"""A warm start by an adapter: it teaches, is made once per recipe, and leaves a plain model folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mlrl_core.competitions import Competition, prepare_competition
from mlrl_core.config import RunConfig, load_config
from mlrl_core.errors import MlrlError
from mlrl_core.models.warmstart import _lesson, prepare_warmstart
from tests.models import TINY, save_llama

SMALL = ("warmstart.demonstrations=48", "warmstart.batch_size=8", "warmstart.epochs=2", "policy.lora.r=8")
FAST = ("warmstart.learning_rate=1e-2", "learner.autocast=false", "prompt.max_tokens=200", "warmstart.threads=1")


@pytest.fixture(scope="module")
def diamonds(tmp_path_factory: pytest.TempPathFactory) -> Competition:
    return prepare_competition("diamonds", tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield save_llama(tmp_path_factory.mktemp("base"))
    torch.set_num_threads(before)


def small(base: Path, *overrides: str, seed: int | None = None) -> RunConfig:
    return load_config("smollm2", [f"policy.model={base}", *SMALL, *FAST, *overrides], seed)


def no_making(text: str) -> None:
    pytest.fail(f"it was made again: {text}")


@torch.no_grad()
def loss_of(folder: Path, prompt: tuple[int, ...], responses: Sequence[tuple[int, ...]]) -> float:
    """Mean cross-entropy of the responses' tokens after the prompt, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    losses: list[float] = []
    for response in responses:
        table = torch.log_softmax(model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1], -1)
        losses += (-table.gather(1, torch.tensor(response)[:, None])[:, 0]).tolist()
    return sum(losses) / len(losses)


def test_it_teaches_and_is_made_once(base: Path, diamonds: Competition, tmp_path: Path) -> None:
    said: list[str] = []
    made = prepare_warmstart(base, small(base), diamonds, diamonds.public_dir, tmp_path, said.append)
    assert said[-1].startswith("warm start: step 12 of 12, loss ")
    facts = json.loads((made / "warmstart.json").read_text())
    assert facts["demonstrations"] == 48
    first = float(said[0].rsplit(" ", 1)[1])
    assert facts["loss"] < first - 0.3
    # What was learned is in the plain weights: no adapter lies beside them, and nothing is half made.
    lesson = _lesson(base, small(base), diamonds, diamonds.public_dir)
    some = lesson.responses[:8]
    assert loss_of(made, lesson.prompt_ids, some) == pytest.approx(facts["loss"], abs=0.2)
    assert loss_of(base, lesson.prompt_ids, some) > facts["loss"] + 0.3
    assert not list(made.glob("adapter*"))
    assert [each.name for each in tmp_path.iterdir()] == [made.name]
    # The run's seed is no part of the recipe, the base's weights are.
    again = prepare_warmstart(base, small(base, seed=7), diamonds, diamonds.public_dir, tmp_path, no_making)
    assert again == made
    other = save_llama(tmp_path / "other", TINY | {"num_hidden_layers": 1})
    changed: list[str] = []
    prepare_warmstart(other, small(base), diamonds, diamonds.public_dir, tmp_path / "cache", changed.append)
    assert changed


def test_a_folder_without_safetensors_is_one_line(diamonds: Competition, tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="holds none"):
        prepare_warmstart(tmp_path, small(tmp_path), diamonds, diamonds.public_dir, tmp_path / "c", no_making)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["prompt.contents=full"], "warm-started on the short prompt"),
        (["competition.others=['titanic']"], "needs a policy without a warm start"),
    ],
)
def test_what_a_warm_start_does_not_know_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(MlrlError, match=words):
        load_config("smollm2", overrides)
    load_config("smollm2", [*overrides, "warmstart.demonstrations=0"])
