"""The paper's instrumenter: a frozen model writes the program again with prints in it.

Only where it put them is taken from its answer. The prints themselves are mlrl's own and go into the original text, so
comments, line numbers and everything else stay as they were; an answer that differs in anything but allowed prints is
refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from mlrl_core.instrumentation.frozen import FrozenModel, FrozenModelError
from mlrl_core.instrumentation.milestones import MILESTONES, VALUED, Place
from mlrl_core.instrumentation.reading import UNREADABLE, read

_ROOM = 256  # tokens for the prints, above the longest program
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def places_by_rewriting(code: str, tree: ast.Module, model: FrozenModel, max_tokens: int) -> dict[str, Place]:
    """Where the model's own version of the program prints each milestone. ``max_tokens``: the longest program.

    Raises FrozenModelError when the answer is cut off, does not parse, or is not the same program.
    """
    plain = "\n".join(f'print("{label}")' for label in MILESTONES if label not in VALUED)
    valued = "\n".join(f'print("{label}:", variable)' for label in MILESTONES if label in VALUED)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    start = f"{fence}python\n"
    instruction = (
        "Insert these prints into the program, each after the code that it names, and leave everything else exactly as "
        f"it is. Leave out a print that has no such code.\n{plain}\n{valued}\n"
        f"(variable is the name that holds the number)\n\n{start}{code.rstrip()}\n{fence}\n\nThe same program with "
        "the prints:\n"
    )
    text, ended = model.complete(instruction, start, max_tokens + _ROOM)
    body, closing, _ = f"\n{text}".partition(f"\n{fence}")
    if not closing and not ended:
        raise FrozenModelError("the answer is cut off")
    try:
        answer = read(body.lstrip("\n"))
    except UNREADABLE:
        raise FrozenModelError("the answer does not parse") from None
    places: dict[str, Place] = {}
    if not _align(tree.body, answer.body, places):
        raise FrozenModelError("the answer is not the same program")
    return places


def _align(original: Sequence[ast.AST], answer: Sequence[ast.AST], places: dict[str, Place]) -> bool:
    """Whether ``answer`` is ``original`` with milestone prints between; collects the first place of each."""
    position = 0
    for node in answer:
        if position < len(original):
            inner: dict[str, Place] = {}
            if _same(original[position], node, inner):
                for label, place in inner.items():
                    places.setdefault(label, place)
                position += 1
                continue
        printed = _printed(node)
        if printed is None:
            return False
        label, variable = printed
        # Before the first statement of a block there is none to stand behind: such a print has no place.
        before = original[position - 1] if position else None
        if isinstance(before, ast.stmt):
            places.setdefault(label, Place(before, variable))
    return position == len(original)


def _same(original: ast.AST, answer: ast.AST, places: dict[str, Place]) -> bool:
    """Whether two statements are equal, but for prints in the blocks within."""
    if type(original) is not type(answer):
        return False
    for name in original._fields:
        one, other = getattr(original, name, None), getattr(answer, name, None)
        if name in _BLOCKS and isinstance(one, list) and isinstance(other, list) and _is_block([*one, *other]):
            if not _align(one, other, places):
                return False
        elif _dumped(one) != _dumped(other):
            return False
    return True


def _is_block(nodes: Sequence[object]) -> bool:
    return all(isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) for node in nodes)


def _dumped(value: object) -> object:
    if isinstance(value, ast.AST):
        return ast.dump(value)
    return [_dumped(each) for each in value] if isinstance(value, list) else value


def _printed(node: ast.AST) -> tuple[str, str | None] | None:
    """The milestone that a statement prints: ``print("label")``, or with the one name behind it that holds its
    number; None for anything else, so that no call and no attribute can come in."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return None
    call = node.value
    if not (isinstance(call.func, ast.Name) and call.func.id == "print") or call.keywords or not call.args:
        return None
    first, *others = call.args
    if isinstance(first, ast.JoinedStr) and not others:
        match first.values:
            case [ast.Constant(value=str(text)), ast.FormattedValue(value=ast.Name(id=name), format_spec=None)]:
                return _label(text, name)
        return None
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return None
    if not others:
        return _label(first.value, None)
    if len(others) == 1 and isinstance(others[0], ast.Name):
        return _label(first.value, others[0].id)
    return None


def _label(text: str, variable: str | None) -> tuple[str, str | None] | None:
    label = text.strip().removesuffix(":").strip()
    if label not in MILESTONES or (label in VALUED) != (variable is not None):
        return None
    return label, variable
