"""The tokenizer loses nothing, and programs are short in it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mlrl_core.agent.encoding import chat_prompt_ids
from mlrl_core.nano.facts import TaskFacts
from mlrl_core.nano.grammar import write_demonstration
from mlrl_core.nano.tokenizer import ASSISTANT, MAX_TOKEN_LENGTH, USER, train_tokenizer

FACTS = TaskFacts("diamonds", "regression", "id", "price", ("cut", "color"), ("carat", "depth"), True)


def demonstrations(seed: int, count: int) -> list[str]:
    rng = Random(seed)
    return [write_demonstration(FACTS, rng).response for _ in range(count)]


TOKENIZER: PreTrainedTokenizerFast = train_tokenizer(demonstrations(0, 500), 1024)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


def test_programs_are_some_seventy_tokens_long() -> None:
    lengths = [len(TOKENIZER(text)["input_ids"]) for text in demonstrations(1, 200)]
    assert sum(lengths) / len(lengths) < 80
    assert all(len(TOKENIZER.decode([i])) <= MAX_TOKEN_LENGTH for i in range(len(TOKENIZER)))


def test_a_prompt_opens_the_assistants_turn() -> None:
    ids = chat_prompt_ids(TOKENIZER, "Do it.")
    assert TOKENIZER.decode(ids) == f"{USER}\nDo it.\n{ASSISTANT}\n"


@pytest.mark.parametrize("text", [f"a{USER}b", f"{ASSISTANT}"])
def test_turn_marks_are_single_tokens(text: str) -> None:
    assert sum(i in TOKENIZER.all_special_ids for i in TOKENIZER(text)["input_ids"]) == 1
