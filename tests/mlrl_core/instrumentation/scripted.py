"""Models that follow a script, through the same interface as a real one."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from random import Random

from mlrl_core.instrumentation.frozen import Question
from mlrl_core.instrumentation.milestones import MILESTONES, VALUED


def program_in(instruction: str) -> str:
    """The program that an instruction of ``lm_rewrite`` quotes."""
    match = re.search(r"(?s)\n(`{3,})python\n(.*)\n\1\n", instruction)
    assert match is not None
    return match[2]


class RandomLines:
    """Chooses any of the lines that it is offered."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        return [self.rng.randrange(len(choices)) for _, choices in questions]

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        raise AssertionError("lm_lines asks for no text")


class MarkedLines:
    """Chooses the lines that a person has marked (label -> line number, variable); for a number that stands behind a
    loop, the line within it that assigns the number."""

    def __init__(self, code: str, marks: dict[str, tuple[int, str | None]]) -> None:
        lines = code.split("\n")
        assigned = {
            label: line if variable is None else max(_assigned(code, line, variable), default=line)
            for label, (line, variable) in marks.items()
        }
        self.wanted = {label: f" {lines[line - 1].strip()}\n" for label, line in assigned.items()}

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        return [self._chosen(start.removesuffix(":"), choices) for start, choices in questions]

    def _chosen(self, label: str, choices: Sequence[str]) -> int:
        wanted = self.wanted.get(label, " none\n")
        return choices.index(wanted) if wanted in choices else len(choices) - 1

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        raise AssertionError("lm_lines asks for no text")


class Rewriter:
    """Writes the program again with prints at any line that keeps it parsing; ``spoil`` changes a constant too."""

    def __init__(self, seed: int, spoil: bool = False) -> None:
        self.rng, self.spoil = Random(seed), spoil

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        raise AssertionError("lm_rewrite offers no choices")

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        lines = program_in(instruction).replace("\r\n", "\n").split("\n")
        for label in MILESTONES:
            text = f'print("{label}:", loss)' if label in VALUED else f'print("{label}")'
            for _ in range(6):
                place = self.rng.randrange(len(lines))
                indent = re.match(r"[ \t]*", lines[place])
                assert indent is not None
                tried = [*lines[: place + 1], indent[0] + text, *lines[place + 1 :]]
                if _statements("\n".join(tried)) == _statements("\n".join(lines)) + 1:
                    lines = tried
                    break
        code = "\n".join(lines)
        if self.spoil:
            code = code.replace("0.1", "0.2", 1) if "0.1" in code else code.replace("done", "gone", 1)
        fence = start.removesuffix("python\n")
        return f"{code}\n{fence}\nThat is the program.", True


def _assigned(code: str, line: int, variable: str) -> list[int]:
    """The lines of the statement at ``line``, or within it, on which ``variable`` is assigned a value."""
    return [
        node.lineno
        for statement in ast.walk(ast.parse(code))
        if isinstance(statement, ast.stmt) and statement.lineno == line
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == variable for t in node.targets)
    ]


def _statements(code: str) -> int:
    """Number of statements; 0 where the code does not parse."""
    try:
        return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError):
        return 0
