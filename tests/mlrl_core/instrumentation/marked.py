"""Forty programs with the milestones that a person has marked: ``tests/cases/instrumentation``.

``#@ label`` stands at the first line of the statement after which a milestone is reached (for a loop that is the whole
loop); ``#@ label=name`` names the variable that then holds the number. Several marks are separated by ``;``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.instrumentation.loops import outside_loops
from mlrl_core.instrumentation.milestones import Place

FOLDER = Path(__file__).parents[2] / "cases" / "instrumentation"


@dataclass(frozen=True)
class Marked:
    name: str
    code: str
    marks: dict[str, tuple[int, str | None]]  # label -> line, variable


def marked_programs() -> list[Marked]:
    found: list[Marked] = []
    for path in sorted(FOLDER.glob("marked_*.txt")):
        for part in path.read_text().split("=== ")[1:]:
            name, _, body = part.partition("\n")
            lines: list[str] = []
            marks: dict[str, tuple[int, str | None]] = {}
            for number, line in enumerate(body.rstrip("\n").split("\n"), start=1):
                code, _, comment = line.partition("  #@ ")
                lines.append(code)
                for mark in filter(None, comment.split("; ")):
                    label, _, variable = mark.partition("=")
                    marks[label] = number, variable or None
            found.append(Marked(name, "\n".join(lines) + "\n", _at_first_lines("\n".join(lines), marks)))
    return found


def settled_places(program: Marked, place: Callable[[ast.Module], Mapping[str, Place]]) -> Mapping[str, Place]:
    """Where the prints of what ``place`` says of the program's tree will stand."""
    tree = ast.parse(program.code)
    return outside_loops(tree, place(tree))


def placed_right(program: Marked, settled: Mapping[str, Place]) -> set[str]:
    """The marked labels that are put where the person did."""
    return {
        label
        for label, (line, variable) in program.marks.items()
        if label in settled and (settled[label].statement.lineno, settled[label].variable) == (line, variable)
    }


def _at_first_lines(code: str, marks: dict[str, tuple[int, str | None]]) -> dict[str, tuple[int, str | None]]:
    """A mark at the last line of a statement of several lines belongs to its first."""
    simple = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.stmt) and not hasattr(n, "body")]
    first = {node.end_lineno: node.lineno for node in simple}
    return {label: (first.get(line, line), variable) for label, (line, variable) in marks.items()}
