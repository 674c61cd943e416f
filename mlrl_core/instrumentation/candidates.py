"""The statements after which a print can be put, as a model is offered them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mlrl_core.instrumentation.loops import FUNCTIONS, LOOPS
from mlrl_core.instrumentation.milestones import VALUED

# After these nothing runs, or nothing has run yet.
_NOT_AFTER = (
    *(ast.Return, ast.Raise, ast.Break, ast.Continue),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Pass),
)
_NO_NUMBER = (
    *(ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.Lambda),
    *(ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp),
)
_WITHOUT_CALL = {
    "trained model": LOOPS,
    "predicted test labels": (ast.Assign, ast.AnnAssign, ast.AugAssign),
}


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


def closing_imports(tree: ast.Module) -> set[ast.stmt]:
    """The last import of each block that has any."""
    return {
        imports[-1]
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list)
        and (imports := [each for each in block if isinstance(each, ast.stmt) and is_import(each)])
    }


def can_hold(candidate: Candidate, label: str, last_imports: set[ast.stmt]) -> bool:
    """Whether the syntax of a statement allows that a milestone is reached with it.

    Packages are imported with the last import of a block (``last_imports``), a number is assigned to one name by more
    than a literal, a model is assigned; all else calls something, or is a loop that trains, or an assigned result.
    """
    statement = candidate.statement
    if label == "imported packages":
        return statement in last_imports
    if is_import(statement):
        return False
    if label in VALUED:
        value = getattr(statement, "value", None)
        literal = isinstance(value, _NO_NUMBER) and not isinstance(statement, ast.AugAssign)
        return candidate.variable is not None and value is not None and not literal
    if label == "defined model":
        return isinstance(statement, ast.Assign | ast.AnnAssign)
    without_call = _WITHOUT_CALL.get(label)
    if without_call and isinstance(statement, without_call):
        return True
    return any(isinstance(node, ast.Call) for node in _run_with(statement))


def is_import(statement: ast.stmt) -> bool:
    """An import, or a ``try`` around nothing else."""
    if isinstance(statement, ast.Try):
        return all(isinstance(each, ast.Import | ast.ImportFrom) for each in statement.body)
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _run_with(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without the bodies of functions and classes that it defines."""
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        yield node
        left += [
            each for each in ast.iter_child_nodes(node) if not isinstance(each, (*FUNCTIONS, ast.ClassDef, ast.Lambda))
        ]


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
