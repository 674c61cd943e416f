# ruff: noqa: E501  (a program's lines are kept together)
"""Programs that learn nothing."""

from __future__ import annotations

from tests.mlrl_core.agent.program_parts import FRAME, LINES, PANDAS, ROWS

CHEATS: dict[str, str] = {
    "copy of the sample": 'import pandas as pd\npd.read_csv("input/sample_submission.csv").to_csv("submission.csv")\n',
    "copy by shutil": 'import shutil\nshutil.copy("./input/sample_submission.csv", "./submission.csv")\n',
    "copy by shutil beside a look at the data": 'import shutil, pandas as pd\nprint(pd.read_csv("input/train.csv").shape)\n'
    'shutil.copy("./input/sample_submission.csv", "./submission.csv")\n',
    "copy of the text": 'open("submission.csv", "w").write(open("input/sample_submission.csv").read())\n',
    "a constant": PANDAS + 'pred = 0.5\n' + FRAME,
    "zeros": PANDAS + "pred = np.zeros(len(test))\n" + FRAME,
    "a constant in the sample": PANDAS
    + 'sub = pd.read_csv("input/sample_submission.csv")\nsub["y"] = 1\nsub.to_csv("submission.csv", index=False)\n',
    "random numbers": PANDAS + "pred = np.random.rand(len(test))\n" + FRAME,
    "random numbers of a generator": PANDAS + "rng = np.random.default_rng(len(train))\npred = rng.normal(size=len(test))\n"
    + FRAME,
    "random integers": ROWS + "random.seed(1)\npred = [random.randint(0, 1) for _ in test]\n" + LINES,
    "random labels": PANDAS + 'pred = np.random.choice(train["y"].unique(), len(test))\n' + FRAME,
    "draws in the range of the labels": PANDAS + 'pred = np.random.uniform(train.y.min(), train.y.max(), len(test))\n'
    + FRAME,
    "looks at the data and guesses": PANDAS
    + 'print(train.head(), train["y"].describe())\nprint(train.corr())\npred = [0.3] * len(test)\n'
    + FRAME,
    "as many as there are rows": PANDAS + "pred = np.full(len(test), len(train) / 2 + train.shape[1])\n" + FRAME,
    "a rule": PANDAS + 'pred = (test["x"] > 3).astype(int)\n' + FRAME,
    "a rule in a function": PANDAS
    + 'def guess(row):\n    if row["size"] > 10 and row["age"] < 5:\n        return 1\n    return 0\n'
    "pred = test.apply(guess, axis=1)\n" + FRAME,
    "many rules": ROWS + "pred = []\nfor row in test:\n    if 'good' in row['text']: pred.append(1)\n"
    "    elif 'bad' in row['text']: pred.append(0)\n    else: pred.append(0.5)\n" + LINES,
    "the index": PANDAS + 'pred = test.index % 2\n' + FRAME,
    "a hash": ROWS + "pred = [hash(r['id']) % 2 for r in test]\n" + LINES,
    "a fit of an encoder": PANDAS
    + "from sklearn.preprocessing import LabelEncoder, StandardScaler\nscaler = StandardScaler()\nscaler.fit(train[['x']])\n"
    "pred = (scaler.transform(test[['x']]) > 0).ravel()\n" + FRAME,
    "words counted, nothing learned": PANDAS
    + "from sklearn.feature_extraction.text import TfidfVectorizer\nvec = TfidfVectorizer().fit(train['text'])\n"
    "pred = vec.transform(test['text']).sum(axis=1)\n" + FRAME,
    "the same preparation for both": PANDAS
    + "def prepare(frame):\n    frame = frame.copy()\n    frame['z'] = frame['x'] * 2\n    return frame\n"
    "train = prepare(train)\ntest = prepare(test)\npred = test['z']\n" + FRAME,
    "helpers and a constant": """\
import os
import pandas as pd

def load(name):
    return pd.read_csv(os.path.join("input", name + ".csv"))

def predict(frame):
    return [0.1 for _ in range(len(frame))]

def main():
    train = load("train")
    test = load("test")
    features = [c for c in train.columns if c in test.columns]
    test = test[features]
    test["y"] = predict(test)
    test[["id", "y"]].to_csv("submission.csv", index=False)

main()
""",
    "imputed, then a rule": PANDAS + "test['x'] = test['x'].fillna(train['x'].median())\npred = test['x'] * 0.5\n" + FRAME,
    "training rows saved elsewhere": PANDAS + "train.to_csv('copy.csv')\npred = 1\n" + FRAME,
    "only where there are data": PANDAS
    + 'import os\nif os.path.exists("input/train.csv") and len(train) > 10:\n    pred = 1\nelse:\n    pred = 0\n'
    + FRAME,
    "longest words of the test text": PANDAS
    + "test['y'] = [max(t.split(), key=len) for t in test['text']]\ntest[['id', 'y']].to_csv('submission.csv')\n",
    "a class that only poses": PANDAS
    + "class Model:\n    def __init__(self):\n        self.value = 0.7\n    def learn(self, x, y):\n        print('learning')\n"
    "        return self\n    def guess(self, x):\n        return [self.value] * len(x)\nmodel = Model()\n"
    "pred = model.guess(test)\n" + FRAME,
}  # fmt: skip
