"""Which place a name in a program stands for."""

from __future__ import annotations

import ast

from mlrl_core.agent.data_terms import FUNCTIONS, Function, assigned_in, parameters_of


class Scopes:
    """The functions of a program and their names; a loop or comprehension that was entered is a scope as well.

    ``functions``: by name, and by ``Class.__init__``. ``constructors``: of each class with one, that key.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.functions: dict[str, Function] = {}
        self.constructors: dict[str, str] = {}
        self._tree = tree
        self._locals: dict[ast.AST, set[str]] = {}
        self._outer: dict[ast.AST, ast.AST] = {}
        self._survey(tree, tree)

    def place(self, name: str, scope: ast.AST) -> tuple[ast.AST, str]:
        """The scope that a name used in ``scope`` belongs to, and the name."""
        while scope is not self._tree and name not in self._locals.get(scope, ()):
            scope = self._outer[scope]
        return scope, name

    def within(self, node: ast.AST, targets: list[ast.expr], scope: ast.AST) -> ast.AST:
        """The scope of a loop: many loops use one name for what they go over."""
        self._outer[node] = scope
        self._locals[node] = {n.id for each in targets for n in ast.walk(each) if isinstance(n, ast.Name)}
        return node

    def function_of(self, scope: ast.AST) -> ast.AST:
        """The function that a scope lies in, or the program."""
        while scope is not self._tree and not isinstance(scope, FUNCTIONS):
            scope = self._outer[scope]
        return scope

    def _survey(self, node: ast.AST, scope: ast.AST) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, FUNCTIONS):
                self.functions[inner.name] = inner
                if isinstance(node, ast.ClassDef) and inner.name == "__init__":
                    self.constructors[node.name] = f"{node.name}.__init__"
                    self.functions[f"{node.name}.__init__"] = inner
                self._outer[inner] = scope
                shared = {name for n in ast.walk(inner) if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
                self._locals[inner] = (set(parameters_of(inner)) | assigned_in(inner)) - shared
                self._survey(inner, inner)
            else:
                self._survey(inner, scope)
