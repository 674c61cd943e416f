"""The grammar that writes demonstrations: a short plan, then one program, with the mistakes people make.

The mistakes are what reinforcement learning has to unlearn and the families are what it has to choose between: before
any update about half of the programs give a valid submission, most of them from a fast and simple model. A linear model
of a size without its logarithm predicts negative sizes, which is one more mistake that people make.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from mlrl_core.nano.facts import TaskFacts
from mlrl_core.nano.families import AVERAGE, LINEAR, Family, draw_family

# Share of demonstrations with each mistake. At most one is made per program, as most people do. Few kinds: what is made
# in one program of ten is unlearned within a quickstart, what is made in one of thirty is hardly seen there.
MISTAKES: dict[str, float] = {
    "syntax": 0.1,
    "wrong_file": 0.1,
    "missing_import": 0.1,
    "no_submission": 0.1,
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
        rng.choices(["numbers only", "codes", "one-hot"], weights=[0.2, 0.4, 0.4])[0] if facts.text_columns else ""
    )
    log = facts.positive_target and rng.random() < 0.6
    program = "\n".join(
        [
            *_imports(family, mistake),
            "",
            *_load(mistake),
            *_target(facts, log),
            *_features(facts, encoding),
            *_model(facts, family, log, mistake, rng),
            *_submission(facts, mistake),
        ]
    )
    plan = _plan(facts, family, encoding, log)
    return Demonstration(f"{plan}\n```python\n{program}\n```", family.estimator, mistake)


def _plan(facts: TaskFacts, family: Family, encoding: str, log: bool) -> str:
    features = {
        "": "all columns",
        "numbers only": "numeric columns",
        "codes": "text columns as codes",
        "one-hot": "text columns one-hot",
    }[encoding]
    scale = f" of the log of {facts.target}" if log else f" of {facts.target}"
    return f"Plan: {family.words}{scale}, {features}."


def _imports(family: Family, mistake: str | None) -> list[str]:
    libraries = ["import numpy as np", "import pandas as pd"]
    needed = libraries[0]
    if family.module:
        needed = f"from sklearn.{family.module} import {family.estimator}"
        libraries.append(needed)
    return [line for line in libraries if line != needed or mistake != "missing_import"]


def _load(mistake: str | None) -> list[str]:
    folder = "./" if mistake == "wrong_file" else "./input/"
    return [f'train = pd.read_csv("{folder}train.csv")', 'test = pd.read_csv("./input/test.csv")']


def _target(facts: TaskFacts, log: bool) -> list[str]:
    return [f'y = np.log1p(train["{facts.target}"])' if log else f'y = train["{facts.target}"]']


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
        lines += [
            "X = pd.get_dummies(X, dtype=float)",
            "X_test = pd.get_dummies(X_test, dtype=float).reindex(columns=X.columns, fill_value=0)",
        ]
    return lines


def _model(facts: TaskFacts, family: Family, log: bool, mistake: str | None, rng: Random) -> list[str]:
    forgets = mistake == "syntax"  # the bracket that people forget
    if family is AVERAGE:
        lines, predict = [f"average = np.mean(y{'' if forgets else ')'}"], "np.full(len(X_test), average)"
    elif family is LINEAR:
        fit = "weights = np.linalg.lstsq(np.c_[X, np.ones(len(X))], y, rcond=None"
        lines, predict = [fit if forgets else f"{fit})[0]"], "np.c_[X_test, np.ones(len(X_test))] @ weights"
    else:
        model = f"model = {family.estimator}({family.draw_settings(rng)})"
        lines, predict = [model, f"model.fit(X, y{'' if forgets else ')'}"], "model.predict(X_test)"
        if facts.kind == "binary" and rng.random() < 0.5:
            predict = "model.predict_proba(X_test)[:, 1]"
    return [*lines, f"predictions = {f'np.expm1({predict})' if log else predict}"]


def _submission(facts: TaskFacts, mistake: str | None) -> list[str]:
    columns = f'"{facts.id_column}": test["{facts.id_column}"], "{facts.target}": predictions'
    last = (
        "print(submission.head())"
        if mistake == "no_submission"
        else 'submission.to_csv("./submission.csv", index=False)'
    )
    return [f"submission = pd.DataFrame({{{columns}}})", last]
