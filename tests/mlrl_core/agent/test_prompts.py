"""Prompts fit their budget and say what a program needs to know."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mlrl_core.agent import solve_prompt
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import MlrlError


@dataclass(frozen=True)
class Toy:
    id: str = "toy"
    description: str = "\n".join(f"Line {i} of the description." for i in range(50))
    metric: str = "rmsle"
    is_lower_better: bool = True


def words(text: str) -> int:
    return len(text.split())


def build(max_tokens: int) -> str:
    return solve_prompt(Toy(), "id,price", SandboxConfig(time_limit_s=30, memory_mb=512), max_tokens, words)


def test_all_of_it_when_there_is_room() -> None:
    prompt = build(10_000)
    for needed in ("toy", "rmsle, lower is better", "./input/train.csv", "./submission.csv", "id,price", "30 seconds"):
        assert needed in prompt
    assert "Line 49" in prompt
    assert "[cut]" not in prompt


@pytest.mark.parametrize("budget", [70, 100, 150, 299])
def test_the_description_is_cut_to_whole_lines(budget: int) -> None:
    prompt = build(budget)
    assert words(prompt) <= budget
    assert "exactly one fenced Python block" in prompt
    assert "Line 49" not in prompt
    if "Line 0" in prompt:
        assert prompt.endswith("of the description.\n[cut]\n")


def test_a_budget_below_the_task_is_refused() -> None:
    with pytest.raises(MlrlError, match=r"prompt\.max_tokens = 32 is too small"):
        build(32)
