"""Small questions to the syntax tree of a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlrl_core.instrumentation.reading import UNREADABLE, read


def parse_program(code: str) -> ast.Module | None:
    """The tree, or None where the text is no Python."""
    try:
        return read(code)
    except UNREADABLE:
        return None


def calls_of(tree: ast.AST) -> list[ast.Call]:
    """Every call, in no particular order."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def call_name(call: ast.Call) -> str:
    """The last name of what is called: ``pd.read_csv`` gives ``read_csv``; empty where it has none."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def dotted(node: ast.AST) -> str | None:
    """``self.model`` where that is what is written; None for anything but names with dots between."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def receiver_of(call: ast.Call) -> str | None:
    """What a method is called on, where that is a plain name: ``self.model.fit(x)`` gives ``self.model``."""
    return dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Every text that is written out in the program, without those that only stand there (docstrings)."""
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            yield node.value


def modules_of(tree: ast.AST) -> set[str]:
    """The names that are imported, as the program has them."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}
