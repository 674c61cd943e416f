"""Loops around a statement: a number that changes with every turn is printed when the turns are over."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from mlrl_core.instrumentation.milestones import VALUED, Place

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def parents_of(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """For each node what it is in."""
    return {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}


def outermost_loop(statement: ast.stmt, parents: Mapping[ast.AST, ast.AST]) -> ast.stmt:
    """The outermost loop of the same function (or class) around a statement, or the statement itself."""
    node: ast.AST = statement
    while node in parents:
        node = parents[node]
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(node, LOOPS):
            statement = node
    return statement


def outside_loops(tree: ast.Module, places: Mapping[str, Place]) -> dict[str, Place]:
    """``places`` with the valued ones behind the loops that they stand in: printing in every turn would cost run time
    and count against the output limit, and only the last number is kept."""
    parents = parents_of(tree)
    return {
        label: replace(place, statement=outermost_loop(place.statement, parents)) if label in VALUED else place
        for label, place in places.items()
    }
