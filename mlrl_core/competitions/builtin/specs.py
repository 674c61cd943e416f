"""The built-in competitions: one row each. ``write.py`` turns a row into files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from mlrl_core.competitions.builtin import tables
from mlrl_core.competitions.builtin.tables import SourceFile
from mlrl_core.competitions.competition import Baseline, Rules

LAYOUT = 1  # raise it when the files that `write.py` makes change: prepared copies are then made anew


@dataclass(frozen=True, slots=True)
class BuiltinSpec:
    """How one table becomes a competition.

    ``target`` is the table's column of labels. Rows are put in a seeded order (a hash of seed and row, so that it
    depends on no library) and the first ``n_train`` become the training set, the next ``n_test`` the test set;
    ``stratify`` draws both from every class in proportion. ``sample`` is the value of every prediction in the sample
    submission; ``train_median`` takes the median of the training targets.
    """

    id: str
    name: str
    source: SourceFile
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

    def description(self) -> str:
        """Text of ``description.md``, with ``{n_train}``, ``{n_test}`` and ``{example}`` still to fill in."""
        return resources.files(__package__).joinpath("descriptions", f"{self.id}.md").read_text()

    def baselines(self) -> dict[str, Baseline]:
        """Measured reference models on this split (``measure.py`` wrote them)."""
        return {name: Baseline(**entry) for name, entry in _measured().get(self.id, {}).items()}

    def label_files(self) -> list[Path]:
        """Installed files that hold this competition's labels. Raises MlrlError when the package is not there."""
        return [self.source.locate()]

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
)

BUILTIN: dict[str, BuiltinSpec] = {spec.id: spec for spec in _SPECS}
