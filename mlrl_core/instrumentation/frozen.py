"""What the instrumenters need of a language model. It is frozen and apart from the learner: a policy that placed its
own milestones would place them where the credit is (method.md section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class FrozenModelError(Exception):
    """The model can't answer this (the prompt is too long for it, say): the program falls back, nothing is retried."""


class FrozenModel(Protocol):
    """A language model at temperature 0. The same arguments always give the same answer; callable from any thread."""

    def choose(self, instruction: str, start: str, choices: Sequence[str]) -> int:
        """Index of the choice that the model goes on with, decoded greedily among the ``choices`` alone.

        ``instruction`` is the user's turn and ``start`` the beginning of the answer.
        """
        ...

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        """What follows on ``start``, and whether the model ended by itself within ``max_tokens``."""
        ...
