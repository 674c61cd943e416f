"""Insert milestone prints as whole lines and prove that nothing else has changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from mlrl_core.instrumentation.milestones import MILESTONES, VALUED, Place, print_lines

# What Python's tokenizer counts as a line end; str.splitlines would also split at form feeds and the like.
_LINE_END = re.compile(r"\r\n|\r|\n")


def insert_prints(code: str, tree: ast.Module, places: Mapping[str, Place], nonce: str) -> tuple[str, list[int]]:
    """The program with one print after each placed statement, and its line map (records.InstrumentedProgram).

    A milestone whose print would not run exactly when its statement has run (the body of a one-line ``if``, say) is
    left out. Line ends become ``\\n``.
    """
    lines = _LINE_END.split(code)
    first_on_line = _first_statements(tree)
    after: dict[int, list[tuple[int, list[str]]]] = {}
    for label in MILESTONES:
        place = places.get(label)
        if place is None or (label in VALUED) != (place.variable is not None):
            continue
        statement = place.statement
        end = statement.end_lineno or statement.lineno
        first = first_on_line[_start_line(statement)]
        if first is not statement and not _same_block(tree, first, statement):
            continue
        indent = _indent(lines[_start_line(first) - 1])
        inserted = print_lines(label, nonce, indent, place.variable)
        after.setdefault(_last_line(tree, statement, end), []).append((first.col_offset, inserted))
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
    """Whether ``instrumented`` minus the prints that carry ``nonce`` is the syntax tree of the original."""
    try:
        tree = _WithoutPrints(places, nonce).visit(ast.parse(instrumented))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return ast.dump(tree) == ast.dump(original)


class _WithoutPrints(ast.NodeTransformer):
    """Removes exactly the statements that ``print_lines`` makes."""

    def __init__(self, places: Mapping[str, Place], nonce: str) -> None:
        self._inserted = {
            ast.dump(ast.parse("\n".join(print_lines(label, nonce, "", place.variable))).body[0])
            for label, place in places.items()
        }

    def visit_Try(self, node: ast.Try) -> ast.AST | None:
        return None if ast.dump(node) in self._inserted else self.generic_visit(node)


def _first_statements(tree: ast.Module) -> dict[int, ast.stmt]:
    """For each line on which a statement begins, the first one there."""
    first: dict[int, ast.stmt] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            known = first.get(_start_line(node))
            if known is None or node.col_offset < known.col_offset:
                first[_start_line(node)] = node
    return first


def _start_line(statement: ast.stmt) -> int:
    """The line on which a statement begins, its decorators included."""
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    return [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block and isinstance(block[0], ast.stmt)
    ]


def _same_block(tree: ast.Module, one: ast.stmt, other: ast.stmt) -> bool:
    return any(one in block and other in block for block in _blocks(tree))


def _last_line(tree: ast.Module, statement: ast.stmt, end: int) -> int:
    """The last line of the statements that share the line ``end`` (``a = 1; b = 2``): a print can only follow all."""
    block = next(block for block in _blocks(tree) if statement in block)
    for following in block[block.index(statement) + 1 :]:
        if following.lineno > end:
            break
        end = following.end_lineno or following.lineno
    return end
