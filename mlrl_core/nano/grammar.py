"""The grammar that writes demonstrations: a short plan, then one program, with the mistakes people make.

The mistakes are what reinforcement learning has to unlearn and the families are what it has to choose between:
before any update about half of the programs give a valid submission, most of them from a fast and simple model.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from mlrl_core.nano.facts import TaskFacts
from mlrl_core.nano.families import Family, draw_family

# Share of demonstrations with each mistake. At most one is made per program, as most people do.
MISTAKES: dict[str, float] = {
    "syntax": 0.09,
    "wrong_file": 0.09,
    "wrong_column": 0.07,
    "missing_import": 0.09,
    "no_submission": 0.09,
}


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A response as the policy would write it, and what the grammar decided (for tests and reports)."""

    response: str
    estimator: str
    mistake: str | None


def write_demonstration(facts: TaskFacts, rng: Random) -> Demonstration:
    """One demonstration for the competition behind ``facts``; the same ``rng`` state gives the same text."""
    mistake = rng.choices([*MISTAKES, None], weights=[*MISTAKES.values(), 1 - sum(MISTAKES.values())])[0]
    family = draw_family(facts.kind, rng)
    encoding = (
        rng.choices(["numbers only", "codes", "one-hot"], weights=[0.4, 0.3, 0.3])[0] if facts.text_columns else ""
    )
    log = facts.positive_target and rng.random() < 0.5
    program = "\n".join(
        [
            *_imports(family, mistake),
            "",
            *_load(mistake),
            *_target(facts, log, mistake),
            *_features(facts, encoding),
            *_model(facts, family, log, mistake, rng),
            *_submission(facts, mistake),
        ]
    )
    plan = _plan(facts, family, encoding, log)
    return Demonstration(f"{plan}\n```python\n{program}\n```", family.estimator, mistake)


def _plan(facts: TaskFacts, family: Family, encoding: str, log: bool) -> str:
    features = {
        "": "use all columns",
        "numbers only": "use the numeric columns",
        "codes": "turn the text columns into codes",
        "one-hot": "one-hot encode the text columns",
    }[encoding]
    scale = f" on the log of {facts.target}" if log else ""
    return f"Plan: I {features}, train a {family.words}{scale} and write the predictions."


def _imports(family: Family, mistake: str | None) -> list[str]:
    estimator = f"from sklearn.{family.module} import {family.estimator}"
    libraries = ["import numpy as np", "import pandas as pd"]
    return libraries if mistake == "missing_import" else [*libraries, estimator]


def _load(mistake: str | None) -> list[str]:
    folder = "./" if mistake == "wrong_file" else "./input/"
    return [f'train = pd.read_csv("{folder}train.csv")', f'test = pd.read_csv("{folder}test.csv")']


def _target(facts: TaskFacts, log: bool, mistake: str | None) -> list[str]:
    name = "target_value" if mistake == "wrong_column" else facts.target
    return [f'y = np.log1p(train["{name}"])' if log else f'y = train["{name}"]']


def _features(facts: TaskFacts, encoding: str) -> list[str]:
    lines = [
        f'X = train.drop(columns=["{facts.id_column}", "{facts.target}"])',
        f'X_test = test.drop(columns=["{facts.id_column}"])',
    ]
    if encoding == "numbers only":
        return [f'{line}.select_dtypes("number")' for line in lines]
    if encoding == "codes":
        lines += [
            'for column in X.select_dtypes(exclude="number").columns:',
            "    names = sorted(X[column].unique())",
            "    X[column] = X[column].map(names.index)",
            "    X_test[column] = X_test[column].map(names.index)",
        ]
    elif encoding == "one-hot":
        lines += ["X = pd.get_dummies(X)", "X_test = pd.get_dummies(X_test).reindex(columns=X.columns, fill_value=0)"]
    return lines


def _model(facts: TaskFacts, family: Family, log: bool, mistake: str | None, rng: Random) -> list[str]:
    predict = "model.predict(X_test)"
    if facts.kind == "binary" and rng.random() < 0.5:
        predict = "model.predict_proba(X_test)[:, 1]"
    if log:
        predict = f"np.expm1({predict})"
    fit = "model.fit(X, y"  # the bracket that people forget
    return [
        f"model = {family.estimator}({', '.join(family.draw_settings(rng))})",
        fit if mistake == "syntax" else f"{fit})",
        f"predictions = {predict}",
    ]


def _submission(facts: TaskFacts, mistake: str | None) -> list[str]:
    columns = f'"{facts.id_column}": test["{facts.id_column}"], "{facts.target}": predictions'
    last = (
        "print(submission.head())"
        if mistake == "no_submission"
        else 'submission.to_csv("./submission.csv", index=False)'
    )
    return [f"submission = pd.DataFrame({{{columns}}})", last]
