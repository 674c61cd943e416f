"""Which model a program trains, read from its syntax tree.

The family of a program is the set of estimator classes that it constructs and that some ``fit`` can reach: a class
that is only imported, or a scaler, does not count. Works by naming convention (``...Regressor``, ``...Classifier``,
and a short list of the well-known classes without such a name), so it knows no library in particular. A least squares
fit by numpy or scipy is a model too.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

_SUFFIXES = ("Regressor", "Classifier", "Regression")
_NAMED = frozenset(
    {"Ridge", "RidgeCV", "Lasso", "LassoCV", "LassoLars", "ElasticNet", "ElasticNetCV", "Lars", "BayesianRidge"}
    | {"SVR", "SVC", "LinearSVR", "LinearSVC", "NuSVR", "NuSVC", "KernelRidge", "Perceptron"}
    | {"GaussianNB", "MultinomialNB", "BernoulliNB", "ComplementNB", "RidgeClassifierCV", "LogisticRegressionCV"}
    | {"LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis"}
)
_WRAPPERS = frozenset(
    {"TransformedTargetRegressor", "MultiOutputRegressor", "MultiOutputClassifier", "RegressorChain"}
    | {"OneVsRestClassifier", "OneVsOneClassifier", "CalibratedClassifierCV", "ClassifierChain"}
)
_FITS = frozenset({"fit", "fit_predict", "cross_val_predict", "train"})
_SOLVERS = frozenset({"lstsq", "polyfit", "curve_fit"})  # calls that are the model

UNPARSABLE = "(does not parse)"
NO_MODEL = "(no model)"


def model_family(code: str) -> str:
    """``RandomForestRegressor``, or ``A + B`` (sorted) for several, ``(no model)`` or ``(does not parse)``."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return UNPARSABLE
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {_name(call.func) for call in calls}
    solvers = called & _SOLVERS
    if not called & _FITS:
        return " + ".join(sorted(solvers)) or NO_MODEL
    aliases = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    named = (_name(call.func) for call in calls)
    found = {aliases.get(name, name) for name in named}
    models = sorted(solvers | {name for name in found if _is_model(name)})
    return " + ".join(models) or NO_MODEL


def family_shares(codes: Iterable[str | None]) -> dict[str, float]:
    """Share of each family among the programs given (None = no program, left out), most frequent first."""
    counts = Counter(model_family(code) for code in codes if code is not None)
    total = max(sum(counts.values()), 1)
    return {family: count / total for family, count in counts.most_common()}


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_model(name: str) -> bool:
    return name not in _WRAPPERS and (name.endswith(_SUFFIXES) or name in _NAMED)
