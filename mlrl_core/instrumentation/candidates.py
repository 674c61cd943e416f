"""The statements after which a print can be put, as a model is offered them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

# After these nothing runs, or nothing has run yet.
_NOT_AFTER = (
    *(ast.Return, ast.Raise, ast.Break, ast.Continue),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Pass),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A statement by the line on which it begins; ``variable`` is the one name that it assigns, if it does."""

    line: int
    statement: ast.stmt
    variable: str | None


def candidates_of(tree: ast.Module) -> list[Candidate]:
    """One candidate per line on which a suitable statement begins, in source order. ``from __future__`` and docstrings
    have to stay first, so they are none."""
    found: dict[int, Candidate] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, _NOT_AFTER) or _stays_first(node):
            continue
        if node.lineno not in found:
            found[node.lineno] = Candidate(node.lineno, node, _variable(node))
    return [found[line] for line in sorted(found)]


def _stays_first(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _variable(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None
