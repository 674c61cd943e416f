"""What the instrumenters need of a language model. It is frozen and apart from the learner: a policy that placed its
own milestones would place them where the credit is (method.md section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Question = tuple[str, Sequence[str]]  # how its part of the answer begins, and the choices to go on with


class FrozenModelError(Exception):
    """The model can't answer this (the prompt is too long for it, say): the program falls back, nothing is retried."""


class FrozenModel(Protocol):
    """A language model at temperature 0. The same arguments always give the same answer; callable from any thread."""

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        """For each question the index of the choice that the model goes on with, decoded greedily among its choices.

        ``instruction`` is the user's turn. Before each choice the answer holds all earlier questions with what was
        chosen, and the beginning of this one.
        """
        ...

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        """What follows on ``start``, and whether the model ended by itself within ``max_tokens``."""
        ...
