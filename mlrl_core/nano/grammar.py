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
    "syntax": 0.10,
    "wrong_file": 0.07,
    "wrong_column": 0.07,
    "missing_import": 0.08,
    "text_left_in": 0.08,
    "features_differ": 0.05,
    "no_submission": 0.06,
    "wrong_submission_column": 0.04,
    "predicts_train": 0.03,
}


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A response as the policy would write it, and what the grammar decided (for tests and reports)."""

    response: str
    estimator: str
    mistake: str | None


def write_demonstration(facts: TaskFacts, rng: Random) -> Demonstration:
    """One demonstration for the competition behind ``facts``; the same ``rng`` state gives the same text."""
    mistake = _draw_mistake(facts, rng)
    family = draw_family(facts.kind, rng)
    encoding = _draw_encoding(facts, mistake, rng)
    log = facts.positive_target and rng.random() < 0.5
    program = "\n".join(
        [
            *_imports(family, log, mistake, rng),
            "",
            *_load(mistake, rng),
            *_target(facts, log, mistake, rng),
            *_features(facts, encoding, mistake),
            *_model(facts, family, log, mistake, rng),
            *_submission(facts, mistake, rng),
        ]
    )
    plan = _plan(facts, family, encoding, log, rng)
    return Demonstration(f"{plan}\n```python\n{program}\n```", family.estimator, mistake)


def _draw_mistake(facts: TaskFacts, rng: Random) -> str | None:
    shares = dict(MISTAKES)
    if not facts.text_columns:
        del shares["text_left_in"]
    names: list[str | None] = [*shares, None]
    return rng.choices(names, weights=[*shares.values(), 1 - sum(shares.values())])[0]


def _draw_encoding(facts: TaskFacts, mistake: str | None, rng: Random) -> str:
    if mistake == "text_left_in" or not facts.text_columns:
        return "as they are"
    return rng.choices(["numbers only", "codes", "one-hot"], weights=[0.4, 0.3, 0.3])[0]


def _plan(facts: TaskFacts, family: Family, encoding: str, log: bool, rng: Random) -> str:
    features = {
        "as they are": "use all columns",
        "numbers only": "use the numeric columns",
        "codes": "turn the text columns into codes",
        "one-hot": "one-hot encode the text columns",
    }[encoding]
    scale = f" on the log of {facts.target}" if log else ""
    start = rng.choice(["Plan: I", "Plan: first I", "Plan: we"])
    return f"{start} {features}, train a {family.words}{scale} and write the predictions."


def _imports(family: Family, log: bool, mistake: str | None, rng: Random) -> list[str]:
    estimator = f"from sklearn.{family.module} import {family.estimator}"
    lines = ["import numpy as np", "import pandas as pd", estimator]
    if mistake == "missing_import":
        lines.remove(rng.choice([*lines[1:], lines[0]] if log else lines[1:]))
    return lines


def _load(mistake: str | None, rng: Random) -> list[str]:
    train, test = "./input/train.csv", "./input/test.csv"
    if mistake == "wrong_file":
        train, test = rng.choice([("train.csv", "test.csv"), ("./input/data.csv", test), ("./train.csv", "./test.csv")])
    return [f'train = pd.read_csv("{train}")', f'test = pd.read_csv("{test}")']


def _target(facts: TaskFacts, log: bool, mistake: str | None, rng: Random) -> list[str]:
    name = rng.choice(["target", "label", "y"]) if mistake == "wrong_column" else facts.target
    return [f'y = np.log1p(train["{name}"])' if log else f'y = train["{name}"]']


def _features(facts: TaskFacts, encoding: str, mistake: str | None) -> list[str]:
    drop_train = f'train.drop(columns=["{facts.id_column}", "{facts.target}"])'
    drop_test = "test" if mistake == "features_differ" else f'test.drop(columns=["{facts.id_column}"])'
    lines = [f"X = {drop_train}", f"X_test = {drop_test}"]
    if encoding == "numbers only":
        lines = [f'{line}.select_dtypes("number")' for line in lines]
    elif encoding == "codes":
        lines += [
            'for column in X.select_dtypes(exclude="number").columns:',
            "    names = sorted(X[column].unique())",
            "    X[column] = X[column].map(names.index)",
            "    X_test[column] = X_test[column].map(names.index)",
        ]
    elif encoding == "one-hot":
        lines += [
            "X = pd.get_dummies(X)",
            "X_test = pd.get_dummies(X_test).reindex(columns=X.columns, fill_value=0)"
            if mistake != "features_differ"
            else "X_test = pd.get_dummies(X_test)",
        ]
    return lines


def _model(facts: TaskFacts, family: Family, log: bool, mistake: str | None, rng: Random) -> list[str]:
    rows = "X" if mistake == "predicts_train" else "X_test"
    predict = f"model.predict({rows})"
    if facts.kind == "binary" and rng.random() < 0.5:
        predict = f"model.predict_proba({rows})[:, 1]"
    if log:
        predict = f"np.expm1({predict})"
    lines = [
        f"model = {family.estimator}({', '.join(family.draw_settings(rng))})",
        "model.fit(X, y)",
        f"predictions = {predict}",
    ]
    if mistake == "syntax":
        broken = rng.randrange(3)
        if broken == 0:
            lines[0] = lines[0][:-1]  # bracket never closed
        elif broken == 1:
            lines[1] = "    " + lines[1]  # indented for no reason
        else:
            lines[2] = lines[2] + ")"
    return lines


def _submission(facts: TaskFacts, mistake: str | None, rng: Random) -> list[str]:
    column = "prediction" if mistake == "wrong_submission_column" else facts.target
    frame = f'pd.DataFrame({{"{facts.id_column}": test["{facts.id_column}"], "{column}": predictions}})'
    lines = [f"submission = {frame}", 'submission.to_csv("./submission.csv", index=False)']
    if mistake == "no_submission":
        lines[1] = rng.choice(["print(submission.head())", 'submission.to_csv("./output.csv", index=False)'])
    return lines
