"""The model families of the grammar: fast and simple ones are common, slow and good ones are rare.

The simple ones need nothing but numpy, so they also start three times as fast. Histogram gradient boosting is left out
on purpose: on small tables it is both fast and good, and a world without a trade-off between speed and quality has
nothing to show of the paper's effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["regression", "binary"]
Settings = tuple[tuple[str, tuple[str, ...]], ...]

_FOREST: Settings = (("n_estimators", ("40", "80", "120")),)
_BOOSTING: Settings = (("n_estimators", ("100", "200")), ("max_depth", ("3", "5")))
_TREE: Settings = (("max_depth", ("3", "5", "8")),)


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of model: how a plan names it and how often demonstrations pick it."""

    words: str
    share: float
    module: str = ""  # of scikit-learn; empty for what numpy alone can do
    estimator: str = ""  # the class, or the word for what numpy does
    settings: Settings = ()

    def draw_settings(self, rng: Random) -> str:
        """Keyword arguments in a fixed order."""
        return ", ".join([*(f"{name}={rng.choice(values)}" for name, values in self.settings), "random_state=0"])


AVERAGE = Family("nothing but the average", 0.22, estimator="mean")
LINEAR = Family("a linear model", 0.32, estimator="lstsq")


def _trees(kind: Literal["Regressor", "Classifier"]) -> tuple[Family, ...]:
    return (
        Family("a decision tree", 0.22, "tree", f"DecisionTree{kind}", _TREE),
        Family("a random forest", 0.08, "ensemble", f"RandomForest{kind}", _FOREST),
        Family("many extra trees", 0.08, "ensemble", f"ExtraTrees{kind}", _FOREST),
        Family("gradient boosting", 0.08, "ensemble", f"GradientBoosting{kind}", _BOOSTING),
    )


FAMILIES: dict[Kind, tuple[Family, ...]] = {
    "regression": (AVERAGE, LINEAR, *_trees("Regressor")),
    "binary": (AVERAGE, LINEAR, *_trees("Classifier")),
}


def draw_family(kind: Kind, rng: Random) -> Family:
    """One family, with the shares above."""
    families = FAMILIES[kind]
    return rng.choices(families, weights=[family.share for family in families])[0]
