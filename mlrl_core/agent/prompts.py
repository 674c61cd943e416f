"""What the policy reads. Our own words; the structure follows method.md section 6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import MlrlError


class PromptSource(Protocol):
    """The public side of a competition, as far as a prompt needs it."""

    @property
    def id(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def is_lower_better(self) -> bool: ...


def task_text(competition: PromptSource, sample_header: str, limits: SandboxConfig) -> str:
    """The part of a prompt that is never cut: the task, the rules and the form of the answer.

    ``sample_header`` is the first line of the sample submission.
    """
    direction = "lower" if competition.is_lower_better else "higher"
    return (
        f"Write a Python program for the competition {competition.id}. Its predictions are scored by "
        f"{competition.metric}, {direction} is better.\n"
        f"Train a model on ./input/train.csv, predict ./input/test.csv and write ./submission.csv with the columns "
        f"{sample_header}. No network, {limits.time_limit_s:g} seconds, {limits.memory_mb} MB.\n"
        "First a plan of one to five sentences, then exactly one fenced Python block.\n"
    )


def solve_prompt(
    competition: PromptSource,
    sample_header: str,
    limits: SandboxConfig,
    max_tokens: int,
    count_tokens: Callable[[str], int],
) -> str:
    """The user's turn of a solve prompt, at most ``max_tokens`` long: the task, then the description, cut to fit.

    Raises MlrlError when the task alone is too long.
    """
    task = task_text(competition, sample_header, limits)
    room = max_tokens - count_tokens(task)
    if room < 0:
        raise MlrlError(
            f"prompt.max_tokens = {max_tokens} is too small: the task alone needs {count_tokens(task)} tokens"
        )
    return task + _fit(f"\n{competition.description.strip()}\n", room, count_tokens)


def _fit(text: str, room: int, count_tokens: Callable[[str], int]) -> str:
    """The longest prefix of whole lines that fits; the cut is marked. Empty when not even one line fits."""
    if count_tokens(text) <= room:
        return text
    lines = text.split("\n")
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens("\n".join(lines[:middle]) + "\n[cut]\n") <= room:
            low = middle
        else:
            high = middle - 1
    return "\n".join(lines[:low]) + "\n[cut]\n" if "\n".join(lines[:low]).strip() else ""
