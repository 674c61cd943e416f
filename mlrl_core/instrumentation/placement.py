"""Where each milestone is reached: rules over the syntax tree, no model involved."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_READERS = ("read_", "scan_", "loadtxt", "genfromtxt", "fromfile", "imread")
_PREDICTORS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
_TRAINERS = ("fit", "partial_fit", "train", "fit_predict")
_STEPS = ("backward", "step", "apply_gradients")  # of a training loop that is written out


def place_milestones(tree: ast.Module) -> dict[str, ast.stmt]:
    """For each milestone that the program has, the statement after which it is reached."""
    program = _Program(tree)
    places = {
        "imported packages": program.last_import(),
        "loaded data": program.data_loaded(),
        "defined model": program.model_defined(),
        "trained model": program.model_trained(),
        "predicted test labels": program.labels_predicted(),
    }
    return {label: place for label, statement in places.items() if (place := program.reachable_end(statement))}


class _Program:
    """One parsed program: its statements in source order, each with its parents."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {
            child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)
        }
        self.calls = sorted(
            (node for node in ast.walk(tree) if isinstance(node, ast.Call)),
            key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0),
        )
        predicted = {_receiver(call) for call in self.calls if _called(call) in _PREDICTORS}
        fits = [call for call in self.calls if _called(call) in _TRAINERS and isinstance(call.func, ast.Attribute)]
        # An encoder or a scaler is fitted too; a model is what predicts.
        self.fits = [call for call in fits if _receiver(call) in predicted - {None}] or fits

    def last_import(self) -> ast.stmt | None:
        imports = [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        return imports[-1] if imports else None

    def data_loaded(self) -> ast.stmt | None:
        """The last read before anything is trained, in the block of the first read."""
        reads = [call for call in self.calls if _called(call).startswith(_READERS)]
        if not reads:
            return None
        first = self.statement(reads[0])
        end = self.fits[0].lineno if self.fits else float("inf")
        same_block = [
            statement
            for call in reads
            if call.lineno < end and self.parents[statement := self.statement(call)] is self.parents[first]
        ]
        return same_block[-1] if same_block else first

    def model_defined(self) -> ast.stmt | None:
        """The last assignment, before the first fit, to the name that is fitted; else the statement of that fit."""
        if not self.fits:
            return None
        fit = self.fits[0]
        name = _receiver(fit)
        assigned = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and node.lineno <= fit.lineno
            and any(name is not None and _name(target) == name for target in _targets(node))
        ]
        if assigned:
            return max(assigned, key=lambda node: node.lineno)
        return self.statement(fit) if name is None else None

    def model_trained(self) -> ast.stmt | None:
        """The last fit; for a loop that is written out, the outermost loop around its step."""
        if self.fits:
            return self.statement(self.fits[-1])
        steps = [call for call in self.calls if _called(call) in _STEPS and not call.args]
        if not steps:
            return None
        statement = self.statement(steps[-1])
        for ancestor in self.ancestors(statement):
            if isinstance(ancestor, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                break
            if isinstance(ancestor, ast.For | ast.While):
                statement = ancestor
        return statement

    def labels_predicted(self) -> ast.stmt | None:
        """The last prediction on something named after the test data, else the last prediction."""
        predictions = [call for call in self.calls if _called(call) in _PREDICTORS]
        on_test = [c for c in predictions if any("test" in ast.unparse(argument).lower() for argument in c.args)]
        chosen = on_test or predictions
        return self.statement(chosen[-1]) if chosen else None

    def reachable_end(self, statement: ast.stmt | None) -> ast.stmt | None:
        """A statement in whose block a print can follow it. After a ``return`` nothing runs, so there the milestone
        is reached where the function was called."""
        seen: set[str] = set()
        while isinstance(statement, ast.Return):
            function = next((a for a in self.ancestors(statement) if isinstance(a, ast.FunctionDef)), None)
            if function is None or function.name in seen:
                return None
            seen.add(function.name)
            calls = [call for call in self.calls if _called(call) == function.name]
            statement = self.statement(calls[-1]) if calls else None
        return statement

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``; for the head of a compound statement the whole of it."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node


def _called(call: ast.Call) -> str:
    """The last name of what is called: ``pd.read_csv`` gives ``read_csv``."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _receiver(call: ast.Call) -> str | None:
    """The name on which a method is called: ``self.model.fit(x)`` gives ``self.model``; None for anything else."""
    return _name(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := _name(node.value)):
        return f"{inner}.{node.attr}"
    return None


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
