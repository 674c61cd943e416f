"""The built-in competitions: one row each. ``write.py`` turns a row into files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from mlrl_core.competitions.builtin import tables
from mlrl_core.competitions.builtin.synthetic import SyntheticSource
from mlrl_core.competitions.builtin.tables import SourceFile
from mlrl_core.competitions.competition import Baseline, Rules

LAYOUT = 1  # raise it when the files that `write.py` makes change: prepared copies are then made anew


@dataclass(frozen=True, slots=True)
class BuiltinSpec:
    """How one table becomes a competition.

    ``target`` is the table's column of labels. Rows are put in a seeded order (a hash of seed and row, so that it
    depends on no library) and the first ``n_train`` become the training set, the next ``n_test`` the test set;
    ``stratify`` draws both from every class in proportion. ``sample`` is the value of every prediction in the sample
    submission; ``train_median`` takes the median of the training targets, ``length:COLUMN`` the number of characters
    in a column of the test set. ``hidden`` names a column that is never written (a synthetic rule's own values).
    """

    id: str
    name: str
    source: SourceFile | SyntheticSource
    target: str
    metric: str
    is_lower_better: bool
    rules: Rules
    n_train: int
    n_test: int
    stratify: bool
    sample: str
    strong_score: float
    seed: int = 0
    hidden: str | None = None

    def description(self) -> str:
        """Text of ``description.md``, with ``{n_train}``, ``{n_test}`` and ``{example}`` still to fill in."""
        return resources.files(__package__).joinpath("descriptions", f"{self.id}.md").read_text()

    def baselines(self) -> dict[str, Baseline]:
        """Measured reference models on this split (``measure.py`` wrote them)."""
        return {name: Baseline(**entry) for name, entry in _measured().get(self.id, {}).items()}

    def label_files(self) -> list[Path]:
        """Installed files that hold this competition's labels. Raises MlrlError when the package is not there."""
        return self.source.label_files()

    def digest(self) -> str:
        """16 hex digits that change whenever the prepared files would."""
        parts = [LAYOUT, self.id, self.name, self.target, self.metric, self.n_train, self.n_test, self.stratify]
        parts += [self.sample, self.strong_score, self.seed, repr(self.rules), repr(self.baselines())]
        parts += [self.description(), self.source.digest()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@cache
def _measured() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads(resources.files(__package__).joinpath("baselines.json").read_text())


_SPECS = (
    BuiltinSpec(
        id="diamonds",
        name="Diamond prices",
        source=tables.DIAMONDS,
        target="price",
        metric="rmsle",
        is_lower_better=True,
        rules=Rules("id", ("price",)),
        n_train=4000,
        n_test=2000,
        stratify=False,
        sample="train_median",
        strong_score=0.097,
    ),
    BuiltinSpec(
        id="breast-cancer",
        name="Benign or malignant",
        source=tables.BREAST_CANCER,
        target="benign",
        metric="auc",
        is_lower_better=False,
        rules=Rules("id", ("benign",), value_range=(0.0, 1.0)),
        n_train=379,
        n_test=190,
        stratify=True,
        sample="0.5",
        strong_score=0.995,
    ),
    BuiltinSpec(
        id="digits",
        name="Handwritten digits, 8 x 8",
        source=tables.DIGITS,
        target="digit",
        metric="multiclass_log_loss",
        is_lower_better=True,
        rules=Rules(
            "id",
            tuple(f"digit_{digit}" for digit in range(10)),
            columns="refuse",
            value_range=(0.0, 1.0),
            row_sum="isclose",
        ),
        n_train=1197,
        n_test=600,
        stratify=True,
        sample="0.1",
        strong_score=0.074,
    ),
    BuiltinSpec(
        id="penguins",
        name="Penguins of the Palmer Archipelago",
        source=tables.PENGUINS,
        target="species",
        metric="accuracy",
        is_lower_better=False,
        rules=Rules("id", ("species",)),
        n_train=230,
        n_test=114,
        stratify=True,
        sample="Adelie",
        strong_score=1.0,
    ),
    BuiltinSpec(
        id="valence",
        name="Valence of words and emoticons",
        source=tables.VALENCE,
        target="valence",
        metric="pearson",
        is_lower_better=False,
        rules=Rules("id", ("valence",)),
        n_train=5000,
        n_test=2500,
        stratify=False,
        sample="length:token",
        strong_score=0.83,
    ),
    BuiltinSpec(
        id="micro-regression",
        name="Synthetic regression, 200 rows",
        source=SyntheticSource(seed=1, classification=False),
        target="target",
        metric="rmse",
        is_lower_better=True,
        rules=Rules("id", ("target",)),
        n_train=120,
        n_test=80,
        stratify=False,
        sample="train_median",
        strong_score=1.2,
        hidden="signal",
    ),
    BuiltinSpec(
        id="micro-classification",
        name="Synthetic classification, 200 rows",
        source=SyntheticSource(seed=2, classification=True),
        target="target",
        metric="log_loss",
        is_lower_better=True,
        rules=Rules("id", ("target",), value_range=(0.0, 1.0)),
        n_train=120,
        n_test=80,
        stratify=False,
        sample="0.5",
        strong_score=0.49,
        hidden="signal",
    ),
)

BUILTIN: dict[str, BuiltinSpec] = {spec.id: spec for spec in _SPECS}
