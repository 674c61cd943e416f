"""Whether the training data reach the submission of a program: how a learner that is written by hand is known.

The flow of values is followed through assignments, calls, methods that change what they are called on, and conditions,
without regard to order. What says nothing of the values (``len``, ``shape``, column names) carries nothing on, nor do
random draws, encoders and imputation: a program that only copies, draws or guesses has no such flow. In doubt there is
one, for a program that learns must not be taken for one that does not.
"""

from __future__ import annotations

import ast
import re

from mlrl_core.agent.data_terms import (
    COPIERS,
    FILE,
    FIRST_ARGUMENT,
    FRAME_WRITERS,
    NOTHING,
    OTHER,
    READERS,
    RECEIVER_ALONE,
    SHAPE,
    SILENT,
    TRAIN,
    WRITERS,
    Function,
    Value,
    captured_by,
    of_text,
    opens_to_write,
    parameters_of,
    root_of,
)
from mlrl_core.agent.scopes import Scopes
from mlrl_core.agent.syntax import call_name, modules_of

_ROUNDS = 12  # of following the flow; programs settle in three or four


def learns(tree: ast.Module) -> bool:
    """Whether anything in the training data decides what the program writes; False where it is nested too deeply to be
    followed."""
    try:
        return _Flow(tree).learns()
    except RecursionError:
        return False


class _Flow:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._scopes = Scopes(tree)
        self._modules = modules_of(tree)
        self._values: dict[object, Value] = {}  # of (scope, name), of "." + attribute, of a parameter, of a function
        self._written: Value = NOTHING
        self._used: Value = NOTHING  # anything that is given to a call
        self._condition: Value = NOTHING  # what decides whether the statement at hand runs
        self._sinks = False
        self._changed = False

    def learns(self) -> bool:
        for _ in range(_ROUNDS):
            self._changed = False
            self._block(self._tree.body, self._tree)
            if not self._changed:
                break
        if not self._sinks:  # it writes in a way that is not known here
            return TRAIN in self._from(self._used)
        return TRAIN in self._from(self._written)

    def _from(self, value: Value) -> Value:
        """With what the parameters in it are given by any call."""
        found, left = set(value), list(value)
        while left:
            new = self._values.get(left.pop(), NOTHING) - found
            found |= new
            left += new
        return frozenset(found)

    def _add(self, key: object, value: Value) -> None:
        known = self._values.get(key, NOTHING)
        if not value <= known:
            self._values[key] = known | value
            self._changed = True

    # Statements

    def _block(self, statements: list[ast.stmt], scope: ast.AST, in_class: bool = False) -> None:
        for statement in statements:
            self._statement(statement, scope, in_class)

    def _statement(self, node: ast.stmt, scope: ast.AST, in_class: bool) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value, scope, in_class)
            case ast.AnnAssign(value=ast.expr()) | ast.AugAssign():
                assert node.value is not None
                self._assign(node.target, node.value, scope, in_class)
            case ast.Return(value=ast.expr() as value):
                self._add(("return", self._scopes.function_of(scope)), self._value(value, scope) | self._condition)
            case ast.For() | ast.AsyncFor():
                items = self._value(node.iter, scope)
                self._store(node.target, items, scope)  # as it is after the loop
                self._store(node.target, items, self._scopes.within(node, [node.target], scope))
                self._block(node.body, node, in_class)
                self._block(node.orelse, scope, in_class)
            case ast.If() | ast.While():
                self._under(self._value(node.test, scope), [*node.body, *node.orelse], scope, in_class)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    opened = self._value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._store(item.optional_vars, opened, scope)
                self._block(node.body, scope, in_class)
            case ast.Match():
                subject = self._value(node.subject, scope)
                for case in node.cases:
                    for name in captured_by(case.pattern):
                        self._add(self._scopes.place(name, scope), subject)
                    self._under(subject, case.body, scope, in_class)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope)
            case ast.ClassDef():
                self._block(node.body, scope, in_class=True)
            case _:
                for inner in ast.iter_child_nodes(node):
                    if isinstance(inner, ast.expr):
                        self._value(inner, scope)
                    elif isinstance(inner, ast.stmt):
                        self._statement(inner, scope, in_class)
                    elif isinstance(inner, ast.ExceptHandler):
                        self._block(inner.body, scope, in_class)

    def _under(self, condition: Value, body: list[ast.stmt], scope: ast.AST, in_class: bool) -> None:
        before = self._condition
        self._condition = before | condition
        self._block(body, scope, in_class)
        self._condition = before

    def _function(self, node: Function, scope: ast.AST) -> None:
        before, self._condition = self._condition, NOTHING
        names = parameters_of(node)
        for name in names:
            self._add((node, name), frozenset({("parameter", node, name)}))
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        given = frozenset().union(*(self._value(each, scope) for each in defaults))
        for name in names:
            self._add(("parameter", node, name), given)
        self._block(node.body, node)
        self._condition = before

    def _assign(self, target: ast.expr, value: ast.expr, scope: ast.AST, in_class: bool) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other, scope, in_class)
            return
        found = self._value(value, scope) | self._condition
        self._store(target, found, scope)
        if in_class and isinstance(target, ast.Name):
            self._add(f".{target.id}", found)

    def _store(self, target: ast.expr, value: Value, scope: ast.AST) -> None:
        match target:
            case ast.Name():
                self._add(self._scopes.place(target.id, scope), value)
            case ast.Attribute():
                self._add(f".{target.attr}", value)
                if not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")):
                    self._store(target.value, value, scope)
            case ast.Subscript():
                self._store(target.value, value | self._value(target.slice, scope), scope)
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self._store(each, value, scope)
            case ast.Starred():
                self._store(target.value, value, scope)
            case ast.Call(func=ast.Attribute(value=receiver)):  # as in rows.setdefault(key, []).append(row)
                self._store(receiver, value, scope)

    # Expressions

    def _value(self, node: ast.expr, scope: ast.AST) -> Value:
        match node:
            case ast.Constant():
                return of_text(node.value) if isinstance(node.value, str) else NOTHING
            case ast.Name():
                found = self._values.get(self._scopes.place(node.id, scope), NOTHING)
                function = self._scopes.functions.get(node.id)
                return found if function is None else found | self._returned(function)
            case ast.Attribute():
                inner = self._value(node.value, scope)
                return NOTHING if node.attr in SHAPE else inner | self._values.get(f".{node.attr}", NOTHING)
            case ast.Subscript():
                key = self._value(node.slice, scope)
                inner = self._value(node.value, scope)
                return inner - {TRAIN} if OTHER in key and isinstance(node.slice, ast.Constant) else inner | key
            case ast.Call():
                return self._call(node, scope)
            case ast.NamedExpr():
                found = self._value(node.value, scope)
                self._store(node.target, found | self._condition, scope)
                return found
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                found = NOTHING
                inner_scope = self._scopes.within(node, [part.target for part in node.generators], scope)
                for part in node.generators:
                    items = self._value(part.iter, inner_scope)
                    self._store(part.target, items, inner_scope)
                    found = found.union(items, *(self._value(each, inner_scope) for each in part.ifs))
                made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return found.union(*(self._value(each, inner_scope) for each in made))
            case ast.Lambda():
                return self._value(node.body, scope)
            case ast.Yield() | ast.YieldFrom():
                found = self._value(node.value, scope) if node.value else NOTHING
                self._add(("return", self._scopes.function_of(scope)), found | self._condition)
                return found
            case _:
                inner_nodes = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
                return NOTHING.union(*(self._value(each, scope) for each in inner_nodes))

    def _call(self, call: ast.Call, scope: ast.AST) -> Value:
        name = call_name(call)
        receiver = self._value(call.func.value, scope) if isinstance(call.func, ast.Attribute) else NOTHING
        arguments = [*call.args, *(each.value for each in call.keywords)]
        for each in arguments:  # a function that is handed over is called with what stands beside it
            self._bind_all(each, receiver, [a for a in arguments if a is not each], scope)
        values = [self._value(each, scope) for each in arguments]
        given = NOTHING.union(*values)
        self._used |= receiver | given
        self._write(call, name, receiver, given)
        function = self._scopes.functions.get(self._scopes.constructors.get(name, name))
        if function is not None:
            if isinstance(call.func, ast.Attribute):
                self._store(call.func.value, given, scope)
            return self._called(call, function, receiver, values) | (
                given if name in self._scopes.constructors else receiver
            )
        if name in SILENT:
            return NOTHING
        if name in RECEIVER_ALONE and isinstance(call.func, ast.Attribute):
            return receiver
        if name in FIRST_ARGUMENT and call.args:
            self._store(call.args[0], given | self._condition, scope)
        elif isinstance(call.func, ast.Attribute) and root_of(call.func) not in self._modules:
            self._store(call.func.value, given | self._condition, scope)
        found = receiver | given
        if isinstance(call.func, ast.Name) and name not in self._modules:  # a name that holds a function
            found |= self._value(call.func, scope)
        is_read = READERS.match(name) and not opens_to_write(call)
        return found | {TRAIN} if is_read and not found else found

    def _called(self, call: ast.Call, function: Function, receiver: Value, values: list[Value]) -> Value:
        """What a function of the program returns for these arguments."""
        names = parameters_of(function)
        if names and names[0] in ("self", "cls"):
            self._add(("parameter", function, names[0]), receiver)
            names = names[1:]
        starred = any(isinstance(each, ast.Starred) for each in call.args) or any(k.arg is None for k in call.keywords)
        if starred or len(call.args) > len(names):
            bound = dict.fromkeys(names, NOTHING.union(*values))
        else:
            bound = dict(zip(names, values[: len(call.args)], strict=False))
            bound |= {str(k.arg): v for k, v in zip(call.keywords, values[len(call.args) :], strict=True)}
        for name, value in bound.items():
            self._add(("parameter", function, name), value)
        found = self._values.get(("return", function), NOTHING)
        own = {each for each in found if isinstance(each, tuple) and each[1] is function}
        return (found - own).union(*(bound.get(each[2], NOTHING) for each in own))

    def _bind_all(self, node: ast.expr, receiver: Value, others: list[ast.expr], scope: ast.AST) -> None:
        function = self._scopes.functions.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Attribute):
            function = self._scopes.functions.get(node.attr)
        if function is None and not isinstance(node, ast.Lambda):
            return
        given = receiver.union(*(self._value(each, scope) for each in others))
        if isinstance(node, ast.Lambda):
            for parameter in [*node.args.posonlyargs, *node.args.args]:
                self._add(self._scopes.place(parameter.arg, scope), given)
        elif function is not None:
            for name in parameters_of(function):
                self._add(("parameter", function, name), given)

    def _returned(self, function: Function) -> Value:
        found = self._values.get(("return", function), NOTHING)
        return frozenset(each for each in found if not (isinstance(each, tuple) and each[1] is function))

    def _write(self, call: ast.Call, name: str, receiver: Value, given: Value) -> None:
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        files = [text for text in texts if re.search(f"{FILE}$", text)]
        if files and not any("submission" in path for path in files):
            return
        to_file = name == "print" and any(keyword.arg == "file" for keyword in call.keywords)
        if name in FRAME_WRITERS:
            self._sinks = True
            self._written |= receiver | self._condition
        elif name in WRITERS or to_file or (name in COPIERS and any("submission" in text for text in texts)):
            self._sinks = True
            self._written |= given | self._condition
