"""The frozen model chooses as greedy decoding among the choices would, and its cache changes nothing."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from mlrl_core.agent.encoding import chat_prompt_ids
from mlrl_core.errors import InfraError
from mlrl_core.generation.frozen import TransformersModel
from mlrl_core.instrumentation import FrozenModel, FrozenModelError, instrument
from tests.mlrl_core.instrumentation.marked import marked_programs
from tests.models import save_llama

NONCE = "#mlrl:0123456789abcdef:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights and the nano tokenizer."""
    return save_llama(tmp_path_factory.mktemp("frozen"), initializer_range=0.2)


@pytest.fixture(scope="module")
def model(folder: Path) -> TransformersModel:
    return TransformersModel(folder, "float32")


def greedy_choice(model: TransformersModel, instruction: str, start: str, choices: list[str]) -> int:
    """Constrained decoding without a cache, by its definition."""
    tokenizer = model._tokenizer
    options = [tokenizer(choice, add_special_tokens=False)["input_ids"] for choice in choices]
    ids = [*chat_prompt_ids(tokenizer, instruction), *tokenizer(start, add_special_tokens=False)["input_ids"]]
    chosen: list[int] = []
    while chosen not in options:
        allowed = {option[len(chosen)] for option in options if option[: len(chosen)] == chosen}
        with torch.no_grad():
            logits = model._model(torch.tensor([[*ids, *chosen]])).logits[0, -1]
        chosen.append(max(sorted(allowed), key=lambda token: float(logits[token])))
    return options.index(chosen)


def test_it_chooses_greedily_among_the_choices(model: TransformersModel) -> None:
    checked: FrozenModel = model
    for number in range(12):
        choices = [f" {line}\n" for line in range(1, 3 + 9 * number)] + [" none\n"]
        for start in ("loaded data:", "trained model: 12\nx:"):
            instruction = f"program {number}\n" * (number + 1)
            first, second = checked.choose(instruction, [(start, choices), ("then:", choices)])
            assert first == greedy_choice(model, instruction, start, choices)
            assert second == greedy_choice(model, instruction, f"{start}{choices[first]}then:", choices)


def test_one_choice_and_equal_choices(model: TransformersModel) -> None:
    assert model.choose("a", [("b", [" none\n"]), ("c", [" 1\n", " 1\n"])]) == [0, 0]
    assert model.choose("a", [("b", ["x", "xyz"])])[0] in (0, 1)


def test_it_completes_greedily_and_says_whether_it_ended(model: TransformersModel) -> None:
    text, ended = model.complete("write", "go:", 12)
    again = TransformersModel.complete(model, "write", "go:", 12)
    assert (text, ended) == again
    ids = [*chat_prompt_ids(model._tokenizer, "write"), *model._tokenizer("go:", add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        expected = model._model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12)[0, len(ids) :]
    assert text == model._tokenizer.decode(expected, skip_special_tokens=True)
    assert ended == bool(model._ends & set(expected.tolist()))


def test_a_question_that_is_too_long_is_refused(model: TransformersModel) -> None:
    with pytest.raises(FrozenModelError, match="more than the model's 2048"):
        model.choose("print(1)\n" * 3000, [("x:", [" 1\n", " 2\n"])])
    with pytest.raises(FrozenModelError):
        model.complete("print(1)\n" * 3000, "x:", 10)


def test_waiting_for_a_busy_model_ends(folder: Path) -> None:
    model = TransformersModel(folder, "float32", wait_s=0.05)
    with model._turn(), pytest.raises(InfraError, match="busy"):
        model.complete("a", "b", 1)


def test_calls_do_not_interleave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that took turns question by question would all end last, and each would be read again every time."""
    model = TransformersModel(folder, "float32")
    asked: list[int] = []
    compute = model._next_logits

    def noted(ids: list[int]) -> torch.Tensor:
        asked.append(threading.get_ident())
        time.sleep(0.005)  # the others get their chance
        return compute(ids)

    monkeypatch.setattr(model, "_next_logits", noted)
    questions = [(f"{number}:", [" 1\n", " 2\n", " none\n"]) for number in range(5)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: model.choose(f"program {number}", questions), range(8)))
    changes = sum(before != after for before, after in itertools.pairwise(asked))
    assert len(asked) >= 40
    assert changes < 8


@pytest.mark.parametrize("inserter", ["lm_lines", "lm_rewrite"])
def test_whatever_it_says_the_program_stays_the_program(inserter: str, model: TransformersModel) -> None:
    import ast

    for program in marked_programs()[:3]:
        made = instrument(program.code, inserter, NONCE, model, on_failure="ast", max_tokens=40)  # type: ignore[arg-type]
        if inserter == "lm_lines":
            assert made.fallback_reason is None
            assert made.inserter == "lm_lines"
        else:
            assert made.fallback_reason is not None  # random weights write no program
            assert made.inserter == "ast"
        kept = [line for line, number in zip(made.source.split("\n"), made.line_map, strict=False) if number]
        assert ast.dump(ast.parse("\n".join(kept))) == ast.dump(ast.parse(program.code))
