"""A frozen model picks, for each milestone, the line after which it is reached; mlrl inserts the prints.

The model can only choose among lines on which a statement begins, so its answer is always a program that differs from
the original by prints alone.
"""

from __future__ import annotations

import ast

from mlrl_core.instrumentation.candidates import Candidate, candidates_of
from mlrl_core.instrumentation.frozen import FrozenModel
from mlrl_core.instrumentation.milestones import MILESTONES, VALUED, Place

_NONE = " none\n"
_ASKED = "the last line of the code for each milestone (none, if the program does not have it)."
_EXAMPLE = """\
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error
train = pd.read_csv("train.csv")
test = pd.read_csv("test.csv")
model = Ridge()
model.fit(train[["a"]], train["b"])
error = mean_squared_error(train["b"], model.predict(train[["a"]]))
test["b"] = model.predict(test[["a"]])
test.to_csv("submission.csv")
"""
_EXAMPLE_ANSWER = """\
imported packages: 3
loaded data: 5
defined model: 6
training loss: none
trained model: 7
validation score: 8
predicted test labels: 9
"""


def places_by_lines(code: str, tree: ast.Module, model: FrozenModel) -> dict[str, Place]:
    """The place of each milestone that the model sees in the program. Raises FrozenModelError as the model does."""
    candidates = candidates_of(tree)
    instruction = (
        f"Below is a program with numbered lines, then {_ASKED}\n\n{_numbered(_EXAMPLE)}\n{_EXAMPLE_ANSWER}\n"
        f"Below is another program with numbered lines, then {_ASKED}\n\n{_numbered(code)}\n"
    )
    answer = ""
    places: dict[str, Place] = {}
    for label in MILESTONES:
        offered = [each for each in candidates if label not in VALUED or each.variable is not None]
        choices = [f" {each.line}\n" for each in offered] + [_NONE]
        chosen = model.choose(instruction, f"{answer}{label}:", choices)
        answer += f"{label}:{choices[chosen]}"
        if chosen < len(offered):
            places[label] = _place(label, offered[chosen])
    return places


def _place(label: str, candidate: Candidate) -> Place:
    return Place(candidate.statement, candidate.variable if label in VALUED else None)


def _numbered(code: str) -> str:
    lines = code.rstrip("\n").split("\n")
    return "".join(f"{number}| {line}\n" for number, line in enumerate(lines, start=1))
