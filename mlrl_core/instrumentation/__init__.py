"""Milestone prints in a program: partial credit for how far it came (method.md section 3)."""

from __future__ import annotations

import ast
from typing import Literal

from mlrl_core.instrumentation.insertion import insert_prints, same_program
from mlrl_core.instrumentation.line_map import original_lines
from mlrl_core.instrumentation.milestones import MILESTONES, new_nonce
from mlrl_core.instrumentation.placement import place_milestones
from mlrl_core.records import InstrumentedProgram

__all__ = ["MILESTONES", "instrument", "new_nonce", "original_lines"]


def instrument(code: str, inserter: Literal["ast", "none"], nonce: str) -> InstrumentedProgram:
    """``code`` with milestone prints that carry ``nonce``.

    The original runs unchanged, with the reason recorded, when it does not parse, when it holds the nonce, or when the
    result is not the same program once the prints are taken out.
    """
    if inserter == "none":
        return _unchanged(code, nonce, None)
    if nonce in code:
        return _unchanged(code, nonce, "the program holds the nonce")
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _unchanged(code, nonce, "the program does not parse")
    places = place_milestones(tree)
    source, line_map = insert_prints(code, tree, places, nonce)
    if not same_program(tree, source, nonce):
        return _unchanged(code, nonce, "the result is not the same program")
    placed = tuple(label for label in MILESTONES if f'"{nonce} {label}"' in source)
    return InstrumentedProgram(source, inserter, nonce, placed, tuple(line_map))


def _unchanged(code: str, nonce: str, reason: str | None) -> InstrumentedProgram:
    lines = code.count("\n") + 1
    return InstrumentedProgram(code, "none", nonce, (), tuple(range(1, lines + 1)), reason)
