"""Where each milestone is reached: rules over the syntax tree, no model involved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mlrl_core.instrumentation.candidates import is_import
from mlrl_core.instrumentation.loops import FUNCTIONS, LOOPS, outermost_loop, parents_of
from mlrl_core.instrumentation.milestones import Place

_READERS = re.compile(
    r"^(read_\w+|scan_\w+|loadtxt|genfromtxt|fromfile|imread|load|load_dataset|DictReader|reader|ImageFolder)$"
)
_PREDICTORS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
_TRAINERS = ("fit", "partial_fit", "train", "fit_predict")
_STEPS = ("backward", "step", "apply_gradients")  # of a training loop that is written out
_SOLVERS = ("lstsq", "polyfit", "minimize", "least_squares", "curve_fit", "pinv", "nnls")
_WRITERS = ("to_csv", "write_csv", "savetxt", "writerow", "writerows")
_LOSS = re.compile(r"^((train|training|epoch|total|avg|mean|running)_?)?loss$")
_SCORERS = re.compile(r"(_score|_error|_loss|^score|rmse|rmsle|auc|accuracy|kappa)$")
_RESULT = re.compile(r"pred|test|sub|sample|result|out", re.IGNORECASE)


def place_milestones(tree: ast.Module) -> dict[str, Place]:
    """For each milestone that the program has, where it is reached."""
    program = _Program(tree)
    statements = {
        "imported packages": program.last_import(),
        "loaded data": program.data_loaded(),
        "defined model": program.model_defined(),
        "trained model": program.model_trained(),
        "predicted test labels": program.labels_predicted(),
    }
    places = {label: Place(place) for label, statement in statements.items() if (place := program.reachable(statement))}
    valued = {"training loss": program.training_loss(), "validation score": program.validation_score()}
    return places | {label: place for label, place in valued.items() if place is not None}


class _Program:
    """One parsed program: its statements in source order, each with its parents."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents = parents_of(tree)
        self.calls = sorted(
            (node for node in ast.walk(tree) if isinstance(node, ast.Call)),
            key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0),
        )
        self.assigned = sorted(
            (node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)),
            key=lambda node: (node.lineno, node.col_offset),
        )
        predicted = {_receiver(call) for call in self.calls if _called(call) in _PREDICTORS}
        fits = [call for call in self.calls if _is_fit(call)]
        # An encoder or a scaler is fitted too; a model is what predicts.
        self.fits = [call for call in fits if _receiver(call) in predicted - {None}] or fits
        self.steps = [call for call in self.calls if _called(call) in _STEPS and not call.args]

    def last_import(self) -> ast.stmt | None:
        imports = [node for node in self.tree.body if is_import(node)]
        return imports[-1] if imports else None

    def data_loaded(self) -> ast.stmt | None:
        """The last read before anything is trained, in the block of the first read."""
        reads = [node for node in self._named() if _READERS.match(_last_name(node))]
        if not reads:
            return None
        end = self.fits[0].lineno if self.fits else float("inf")
        loops = [(read, self._around_data(self.statement(read))) for read in reads]
        first = loops[0][1]
        block = self._block(first)
        found = [statement for read, statement in loops if read.lineno < end and self._block(statement) is block]
        return found[-1] if found else first

    def model_defined(self) -> ast.stmt | None:
        """The last assignment, before the first fit, to a name that is fitted (or whose parameters are optimised, or
        that a booster is trained by); else the statement of a fit without such a name."""
        if self.fits:
            first = self.fits[0]
            names = {_name(call.args[0]) if _called(call) == "train" and call.args else _receiver(call)
                     for call in self.fits}  # fmt: skip
            line = first.lineno
        else:
            parameters = [call for call in self.calls if _called(call) in ("parameters", "trainable_variables")]
            names, line = {_receiver(call) for call in parameters}, self.steps[0].lineno if self.steps else 0
            first = None
        before = [node for node in self.assigned if node.lineno <= line and not isinstance(node, ast.AugAssign)]
        defined = [node for node in before if {_name(target) for target in _targets(node)} & (names - {None})]
        if defined:
            return defined[-1]
        return self.statement(first) if first is not None and _receiver(first) is None else None

    def model_trained(self) -> ast.stmt | None:
        """The last fit; for a loop that is written out, the outermost loop around its step."""
        if self.fits:
            last = self.statement(self.fits[-1])
            return self._outermost_loop(last) if _called(self.fits[-1]) == "partial_fit" else last
        if self.steps:
            return self._outermost_loop(self.statement(self.steps[-1]))
        solved = [call for call in self.calls if _called(call) in _SOLVERS]
        if solved:
            return self.statement(solved[-1])
        descents = [node for node in self.assigned if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub)]
        loops = [loop for node in descents if (loop := self._outermost_loop(node)) is not node]
        return loops[-1] if loops else None

    def labels_predicted(self) -> ast.stmt | None:
        """The last prediction on something named after the test data, else the last prediction, else the last result
        that is assigned before it is written."""
        predictions = [call for call in self.calls if _called(call) in _PREDICTORS or self._applies_model(call)]
        on_test = [c for c in predictions if any("test" in ast.unparse(argument).lower() for argument in c.args)]
        if chosen := on_test or predictions:
            return self.statement(chosen[-1])
        writes = [call.lineno for call in self.calls if _called(call) in _WRITERS]
        results = [
            node
            for node in self.assigned
            if writes and node.lineno < max(writes) and any(_RESULT.search(ast.unparse(t)) for t in _targets(node))
        ]
        trained = self.model_trained()
        return next((n for n in reversed(results) if trained is None or n.lineno > trained.lineno), None)

    def training_loss(self) -> Place | None:
        """After a training loop that is written out: the name whose gradient is taken, or that is called a loss."""
        loop = self.model_trained()
        if not isinstance(loop, LOOPS):
            return None
        inside = set(ast.walk(loop))
        named = [_receiver(call) for call in self.steps if _called(call) == "backward" and call in inside]
        for node in self.assigned:
            if node in inside and all(_LOSS.match(_name(target) or "") for target in _targets(node)):
                named.append(_name(_targets(node)[0]))
        simple = [name for name in named if name and name.isidentifier()]
        return Place(loop, simple[0]) if simple else None

    def validation_score(self) -> Place | None:
        """The last number that a metric gives to a name of its own."""
        scored = [
            node
            for node in self.assigned
            if isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and "train" not in node.targets[0].id.lower()
            and any(isinstance(n, ast.Call) and _SCORERS.search(_called(n)) for n in ast.walk(node.value))
        ]
        if not scored:
            return None
        target = scored[-1].targets[0]
        assert isinstance(target, ast.Name)
        return Place(scored[-1], target.id)

    def reachable(self, statement: ast.stmt | None) -> ast.stmt | None:
        """A statement in whose block a print can follow it. After a ``return`` nothing runs, so there the milestone
        is reached where the function was called."""
        seen: set[str] = set()
        while isinstance(statement, ast.Return):
            function = next((a for a in self.ancestors(statement) if isinstance(a, FUNCTIONS)), None)
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

    def _named(self) -> list[ast.expr]:
        """Everything that is called, or handed over to be called, by name, in source order."""
        named = [node for node in ast.walk(self.tree) if isinstance(node, ast.Attribute | ast.Name)]
        called = [n for n in named if isinstance(self.parents.get(n), ast.Call) and isinstance(n.ctx, ast.Load)]
        return sorted(called, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))

    def _around_data(self, statement: ast.stmt) -> ast.stmt:
        """A loop that only reads is reached at its end."""
        loop = self._outermost_loop(statement)
        trains = {call.lineno for call in [*self.fits, *self.steps]}
        if any(loop.lineno <= line <= (loop.end_lineno or 0) for line in trains):
            return statement
        return loop

    def _block(self, statement: ast.stmt) -> ast.AST:
        """What a statement is in, ``with`` looked through."""
        return next(a for a in self.ancestors(statement) if not isinstance(a, ast.With | ast.AsyncWith))

    def _outermost_loop(self, statement: ast.stmt) -> ast.stmt:
        """The outermost loop of the same function around a statement, or the statement itself."""
        return outermost_loop(statement, self.parents)

    def _applies_model(self, call: ast.Call) -> bool:
        """``net(x)`` outside the training loop, where ``net`` is what is optimised."""
        models = {_receiver(each) for each in self.calls if _called(each) == "parameters"} - {None}
        loop = self._outermost_loop(self.statement(self.steps[-1])) if self.steps else None
        after = loop is not None and call.lineno > (loop.end_lineno or 0)
        return after and _name(call.func) in models


def _is_fit(call: ast.Call) -> bool:
    """A call that trains; ``model.train()`` only switches a mode."""
    return _called(call) in _TRAINERS and isinstance(call.func, ast.Attribute) and (
        _called(call) != "train" or bool(call.args or call.keywords)
    )  # fmt: skip


def _called(call: ast.Call) -> str:
    """The last name of what is called: ``pd.read_csv`` gives ``read_csv``."""
    return _last_name(call.func)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _receiver(call: ast.Call) -> str | None:
    """The name on which a method is called: ``self.model.fit(x)`` gives ``self.model``; None for anything else."""
    return _name(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := _name(node.value)):
        return f"{inner}.{node.attr}"
    return None


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
