"""The model families of the grammar: fast and simple ones are common, slow and good ones are rare.

Histogram gradient boosting is left out on purpose: on small tables it is both fast and good, and a world without
a trade-off between speed and quality has nothing to show of the paper's effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["regression", "binary"]
Settings = tuple[tuple[str, tuple[str, ...]], ...]

_FOREST: Settings = (("n_estimators", ("50", "100", "200")), ("min_samples_leaf", ("1", "2", "5")))
_BOOSTING: Settings = (
    ("n_estimators", ("100", "200", "400")),
    ("max_depth", ("3", "4", "5")),
    ("learning_rate", ("0.05", "0.1")),
)
_TREE: Settings = (("max_depth", ("3", "5", "8", "12")),)
_NEIGHBOURS: Settings = (("n_neighbors", ("3", "5", "10", "20")),)


@dataclass(frozen=True, slots=True)
class Family:
    """An estimator of scikit-learn: how a plan names it, where it comes from, how often demonstrations pick it."""

    words: str
    module: str
    estimator: str
    share: float
    settings: Settings = ()
    seeded: bool = False  # takes random_state

    def draw_settings(self, rng: Random) -> list[str]:
        """Keyword arguments in a fixed order; each is left at its default one time in four."""
        chosen = [f"{name}={rng.choice(values)}" for name, values in self.settings if rng.random() < 0.75]
        return [*chosen, "random_state=0"] if self.seeded else chosen


_REGRESSION = (
    Family("linear model", "linear_model", "LinearRegression", 0.19),
    Family("ridge model", "linear_model", "Ridge", 0.20, (("alpha", ("0.1", "1.0", "10.0")),)),
    Family("nearest neighbours model", "neighbors", "KNeighborsRegressor", 0.18, _NEIGHBOURS),
    Family("decision tree", "tree", "DecisionTreeRegressor", 0.25, _TREE, seeded=True),
    Family("random forest", "ensemble", "RandomForestRegressor", 0.07, _FOREST, seeded=True),
    Family("forest of extra trees", "ensemble", "ExtraTreesRegressor", 0.05, _FOREST, seeded=True),
    Family("gradient boosting model", "ensemble", "GradientBoostingRegressor", 0.06, _BOOSTING, seeded=True),
)
_BINARY = (
    Family("logistic regression", "linear_model", "LogisticRegression", 0.20, (("C", ("0.1", "1.0", "10.0")),)),
    Family("naive Bayes model", "naive_bayes", "GaussianNB", 0.19),
    Family("nearest neighbours model", "neighbors", "KNeighborsClassifier", 0.18, _NEIGHBOURS),
    Family("decision tree", "tree", "DecisionTreeClassifier", 0.25, _TREE, seeded=True),
    Family("random forest", "ensemble", "RandomForestClassifier", 0.07, _FOREST, seeded=True),
    Family("forest of extra trees", "ensemble", "ExtraTreesClassifier", 0.05, _FOREST, seeded=True),
    Family("gradient boosting model", "ensemble", "GradientBoostingClassifier", 0.06, _BOOSTING, seeded=True),
)
FAMILIES: dict[Kind, tuple[Family, ...]] = {"regression": _REGRESSION, "binary": _BINARY}


def draw_family(kind: Kind, rng: Random) -> Family:
    """One family, with the shares above."""
    families = FAMILIES[kind]
    return rng.choices(families, weights=[family.share for family in families])[0]
