"""Milestone prints in a program: partial credit for how far it came (method.md section 3)."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from mlrl_core.instrumentation.frozen import FrozenModel, FrozenModelError
from mlrl_core.instrumentation.insertion import insert_prints, same_program
from mlrl_core.instrumentation.line_map import original_lines, without_nonce
from mlrl_core.instrumentation.lm_lines import places_by_lines
from mlrl_core.instrumentation.lm_rewrite import places_by_rewriting
from mlrl_core.instrumentation.loops import outside_loops
from mlrl_core.instrumentation.milestones import MILESTONES, VALUED, Place, new_nonce
from mlrl_core.instrumentation.placement import place_milestones
from mlrl_core.instrumentation.reading import UNREADABLE, read
from mlrl_core.records import InstrumentedProgram

__all__ = [
    "MILESTONES",
    "VALUED",
    "FrozenModel",
    "FrozenModelError",
    "Inserter",
    "OnFailure",
    "Place",
    "instrument",
    "new_nonce",
    "original_lines",
    "without_nonce",
]

Inserter = Literal["ast", "lm_lines", "lm_rewrite", "none"]
OnFailure = Literal["ast", "original"]


def instrument(
    code: str,
    inserter: Inserter,
    nonce: str,
    model: FrozenModel | None = None,
    on_failure: OnFailure = "ast",
    max_tokens: int = 2500,
) -> InstrumentedProgram:
    """``code`` with milestone prints that carry ``nonce``.

    The original runs unchanged, with the reason recorded, when it does not parse, when it holds the nonce, or when
    no result is the same program once the prints are taken out. Where the ``model`` of an ``lm_*`` inserter fails,
    ``on_failure`` says whether the rules of ``ast`` place the prints or the original runs (the paper). ``max_tokens``
    is the longest program, in the model's tokens.
    """
    if inserter == "none":
        return _unchanged(code, nonce, None)
    if nonce in code:
        return _unchanged(code, nonce, "the program holds the nonce")
    try:
        tree = read(code)
    except UNREADABLE:
        return _unchanged(code, nonce, "the program does not parse")
    try:
        return _instrumented(code, tree, inserter, nonce, model, on_failure, max_tokens)
    except RecursionError:
        return _unchanged(code, nonce, "the program is nested too deeply")


def _instrumented(
    code: str,
    tree: ast.Module,
    inserter: Inserter,
    nonce: str,
    model: FrozenModel | None,
    on_failure: OnFailure,
    max_tokens: int,
) -> InstrumentedProgram:
    if inserter == "ast":
        return _inserted(code, tree, place_milestones(tree), inserter, nonce)
    if model is None:
        raise ValueError(f"the inserter {inserter} needs a model")
    try:
        if inserter == "lm_lines":
            places = places_by_lines(code, tree, model)
        else:
            places = places_by_rewriting(code, tree, model, max_tokens)
        program = _inserted(code, tree, places, inserter, nonce)
    except FrozenModelError as error:
        program = _unchanged(code, nonce, str(error))
    if program.fallback_reason is None or on_failure == "original":
        return program
    by_rule = _inserted(code, tree, place_milestones(tree), "ast", nonce)
    return by_rule if by_rule.fallback_reason else replace(by_rule, fallback_reason=program.fallback_reason)


def _inserted(
    code: str, tree: ast.Module, places: Mapping[str, Place], inserter: Inserter, nonce: str
) -> InstrumentedProgram:
    places = outside_loops(tree, places)
    source, line_map = insert_prints(code, tree, places, nonce)
    if not same_program(tree, source, places, nonce):
        # A layout in which a print can't be put leaves the other places as they are.
        places = {label: place for label, place in places.items() if _holds(code, tree, {label: place}, nonce)}
        source, line_map = insert_prints(code, tree, places, nonce)
        if not places or not same_program(tree, source, places, nonce):
            return _unchanged(code, nonce, "the result is not the same program")
    placed = tuple(label for label in MILESTONES if f'"{nonce} {label}' in source)
    return InstrumentedProgram(source, inserter, nonce, placed, tuple(line_map))


def _holds(code: str, tree: ast.Module, places: Mapping[str, Place], nonce: str) -> bool:
    source, _ = insert_prints(code, tree, places, nonce)
    return same_program(tree, source, places, nonce)


def _unchanged(code: str, nonce: str, reason: str | None) -> InstrumentedProgram:
    lines = code.count("\n") + 1
    return InstrumentedProgram(code, "none", nonce, (), tuple(range(1, lines + 1)), reason)
