"""What the grammar may know of a competition: names and types of public columns, never an answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from mlrl_core.errors import MlrlError

# What a metric asks for: a number, or the probability of the second class.
_KIND_OF_METRIC: dict[str, Literal["regression", "binary"]] = {
    "rmsle": "regression",
    "rmse": "regression",
    "auc": "binary",
}
_ROWS_READ = 500


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Public facts of a table competition with one target column."""

    competition_id: str
    kind: Literal["regression", "binary"]
    id_column: str
    target: str
    text_columns: tuple[str, ...]
    numeric_columns: tuple[str, ...]
    positive_target: bool


def read_facts(competition_id: str, metric: str, public_dir: Path) -> TaskFacts:
    """Facts from the head of ``train.csv`` and from ``sample_submission.csv``.

    Raises MlrlError when the competition is of a kind that the grammar has no words for.
    """
    kind = _KIND_OF_METRIC.get(metric)
    if kind is None:
        raise MlrlError(
            f"the nano policy knows table competitions scored by {', '.join(_KIND_OF_METRIC)}, but {competition_id} is "
            f"scored by {metric}: train it with another policy.model"
        )
    sample_columns = pl.read_csv(public_dir / "sample_submission.csv", n_rows=1).columns
    train = pl.read_csv(public_dir / "train.csv", n_rows=_ROWS_READ)
    if len(sample_columns) != 2 or not set(sample_columns) <= set(train.columns):
        raise MlrlError(f"the nano policy needs one id and one target column, but {competition_id} has others")
    id_column, target = sample_columns
    features = [c for c in train.columns if c not in sample_columns]
    text = tuple(c for c in features if train.schema[c] == pl.String)
    positive = kind == "regression" and bool((train[target] > 0).all())
    return TaskFacts(
        competition_id=competition_id,
        kind=kind,
        id_column=id_column,
        target=target,
        text_columns=text,
        numeric_columns=tuple(c for c in features if c not in text),
        positive_target=positive,
    )
