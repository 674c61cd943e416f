"""Insert milestone prints as whole lines and prove that nothing else has changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from mlrl_core.instrumentation.milestones import MILESTONES, VALUED, Place, print_lines
from mlrl_core.instrumentation.reading import UNREADABLE, read_compiled

# What Python's tokenizer counts as a line end; str.splitlines would also split at form feeds and the like.
_LINE_END = re.compile(r"\r\n|\r|\n")
_GOES_ON = re.compile(rb"[ \t\f;]*\\")


def insert_prints(code: str, tree: ast.Module, places: Mapping[str, Place], nonce: str) -> tuple[str, list[int]]:
    """The program with one print after each placed statement, and its line map (records.InstrumentedProgram).

    A milestone whose print would not run exactly when its statement has run (the body of a one-line ``if``, say) is
    left out. Line ends become ``\\n``.
    """
    lines = _LINE_END.split(code)
    block_of = {statement: block for block in _blocks(tree) for statement in block}
    after: dict[int, list[tuple[int, list[str]]]] = {}
    for label in MILESTONES:
        place = places.get(label)
        if place is None or (label in VALUED) != (place.variable is not None):
            continue
        block = block_of[place.statement]
        position = block.index(place.statement)
        indent = _indent(block[: position + 1], lines)
        if indent is not None:
            inserted = print_lines(label, nonce, indent, place.variable)
            after.setdefault(_last_line(block, position, lines), []).append((len(indent), inserted))
    source: list[str] = []
    line_map: list[int] = []
    for number, line in enumerate(lines, start=1):
        source.append(line)
        line_map.append(number)
        # A statement and the last one within it end on the same line: what stands in the inner block comes first.
        for _, inserted in sorted(after.get(number, []), key=lambda each: -each[0]):
            source.extend(inserted)
            line_map.extend([0] * len(inserted))
    return "\n".join(source), line_map


def same_program(original: ast.Module, instrumented: str, places: Mapping[str, Place], nonce: str) -> bool:
    """Whether ``instrumented`` compiles and, minus the prints that carry ``nonce``, is the syntax tree of the original.

    Raises RecursionError where the trees are too deep to be compared.
    """
    try:
        tree = read_compiled(instrumented)
    except UNREADABLE:
        return False
    return ast.dump(_WithoutPrints(places, nonce).visit(tree)) == ast.dump(original)


class _WithoutPrints(ast.NodeTransformer):
    """Removes exactly the statements that ``print_lines`` makes."""

    def __init__(self, places: Mapping[str, Place], nonce: str) -> None:
        self._inserted = {
            ast.dump(ast.parse("\n".join(print_lines(label, nonce, "", place.variable))).body[0])
            for label, place in places.items()
        }

    def visit_Try(self, node: ast.Try) -> ast.AST | None:
        return None if ast.dump(node) in self._inserted else self.generic_visit(node)


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    return [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block and isinstance(block[0], ast.stmt)
    ]


def _indent(statements: Sequence[ast.stmt], lines: Sequence[str]) -> str | None:
    """What stands before the last of these statements of a block that begins its line; None where none does (``if x:
    a = 1``): a line of its own would not be part of the block."""
    for statement in reversed(statements):
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
        before = lines[first - 1].encode()[: statement.col_offset].decode(errors="replace")
        if not before.strip(" \t\f"):
            return before
    return None


def _last_line(block: Sequence[ast.stmt], position: int, lines: Sequence[str]) -> int:
    """The last line of the statements that share a logical line with one of the block (``a = 1; b = 2``, or with a
    backslash behind it): a print can only follow all."""
    last = block[position]
    for following in block[position + 1 :]:
        if following.lineno > _end(last, lines):
            break
        last = following
    return _end(last, lines)


def _end(statement: ast.stmt, lines: Sequence[str]) -> int:
    """The last line of a statement, with those on which nothing but a backslash makes it go on."""
    end = statement.end_lineno or statement.lineno
    behind = lines[end - 1].encode()[statement.end_col_offset or 0 :]
    while _GOES_ON.fullmatch(behind) and end < len(lines):
        end += 1
        behind = lines[end - 1].encode()
    return end
