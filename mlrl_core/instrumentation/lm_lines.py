"""A frozen model picks, for each milestone, the statement after which it is reached; mlrl inserts the prints.

The model answers with the line on which that statement begins, decoded among the lines that can hold the milestone, so
its answer is always a program that differs from the original by prints alone. It is asked for the line itself, not for
its number: small models copy well and count badly (docs/results.md).
"""

from __future__ import annotations

import ast
import re

from mlrl_core.instrumentation.candidates import can_hold, candidates_of, closing_imports
from mlrl_core.instrumentation.frozen import FrozenModel
from mlrl_core.instrumentation.milestones import MILESTONES, VALUED, Place

_NONE = " none\n"
_ASKED = "the line of the code after which each milestone is reached (none, if the program does not have it)."
_LINE_CHARS = 120  # of a longer line the model reads all and repeats so many
_LINE_END = re.compile(r"\r\n|\r|\n")
# Three ways to write such a program, each with an answer. They are the same for every program, so a model that keeps
# what it has read reads them once.
_EXAMPLES = (
    (
        """\
import torch
import numpy as np

def load(name):
    return np.loadtxt(name, delimiter=",")

def main():
    x, y = load("x.csv"), load("y.csv")
    x_new = load("new.csv")
    net = torch.nn.Linear(8, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(50):
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
    guess = net(x_new).numpy()
    np.savetxt("out.csv", guess)

main()
""",
        """\
imported packages: import numpy as np
loaded data: x_new = load("new.csv")
defined model: net = torch.nn.Linear(8, 1)
training loss: loss = ((net(x) - y) ** 2).mean()
trained model: for epoch in range(50):
validation score: none
predicted test labels: guess = net(x_new).numpy()
""",
    ),
    (
        """\
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
""",
        """\
imported packages: from sklearn.metrics import mean_squared_error
loaded data: test = pd.read_csv("test.csv")
defined model: model = Ridge()
training loss: none
trained model: model.fit(train[["a"]], train["b"])
validation score: error = mean_squared_error(train["b"], model.predict(train[["a"]]))
predicted test labels: test["b"] = model.predict(test[["a"]])
""",
    ),
    (
        """\
import pandas as pd
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

class Solution:
    def run(self):
        train = pd.read_csv("train.csv")
        sample = pd.read_csv("sample_submission.csv")
        test = pd.read_csv("test.csv")
        features = ["a", "b"]
        a, b = train_test_split(train, test_size=0.2)
        tree = DecisionTreeClassifier(max_depth=5)
        tree.fit(a[features], a["y"])
        accuracy = accuracy_score(b["y"], tree.predict(b[features]))
        print(accuracy)
        tree.fit(train[features], train["y"])
        sample["y"] = tree.predict(test[features])
        sample.to_csv("submission.csv", index=False)

Solution().run()
""",
        """\
imported packages: from sklearn.tree import DecisionTreeClassifier
loaded data: test = pd.read_csv("test.csv")
defined model: tree = DecisionTreeClassifier(max_depth=5)
training loss: none
trained model: tree.fit(train[features], train["y"])
validation score: accuracy = accuracy_score(b["y"], tree.predict(b[features]))
predicted test labels: sample["y"] = tree.predict(test[features])
""",
    ),
)


def places_by_lines(code: str, tree: ast.Module, model: FrozenModel) -> dict[str, Place]:
    """The place of each milestone that the model sees in the program. Raises FrozenModelError as the model does."""
    lines = _LINE_END.split(code)
    candidates, last_imports = candidates_of(tree), closing_imports(tree)
    # Of lines that read the same the last: what is done again is complete only then.
    offered = {
        label: {
            f" {lines[each.line - 1].strip()[:_LINE_CHARS]}\n": each
            for each in candidates
            if can_hold(each, label, last_imports)
        }
        for label in MILESTONES
    }
    questions = [(f"{label}:", [*offered[label], _NONE]) for label in MILESTONES]
    answers = model.choose(_instruction(lines), questions)
    places: dict[str, Place] = {}
    for label, (_, choices), chosen in zip(MILESTONES, questions, answers, strict=True):
        if candidate := offered[label].get(choices[chosen]):
            places[label] = Place(candidate.statement, candidate.variable if label in VALUED else None)
    return places


def _instruction(lines: list[str]) -> str:
    parts = [
        f"Below is {'another' if number else 'a'} program, then {_ASKED}\n\n```python\n{example}```\n{answer}\n"
        for number, (example, answer) in enumerate(_EXAMPLES)
    ]
    program = "\n".join(lines).rstrip()
    return f"{''.join(parts)}Below is another program, then {_ASKED}\n\n```python\n{program}\n```\n"
