# ruff: noqa: E501  (a program's lines are kept together)
"""Programs that learn without any library's ``fit``, and programs that learn nothing."""

from __future__ import annotations

_PANDAS = """\
import numpy as np
import pandas as pd
train = pd.read_csv("./input/train.csv")
test = pd.read_csv("./input/test.csv")
"""
_FEATURES = (
    _PANDAS
    + """\
features = [c for c in train.columns if c not in ("id", "y")]
X, y = train[features].to_numpy(float), train["y"].to_numpy(float)
T = test[features].to_numpy(float)
"""
)
_FRAME = 'pd.DataFrame({"id": test["id"], "y": pred}).to_csv("submission.csv", index=False)\n'
_ROWS = """\
import csv, math, random
train = list(csv.DictReader(open("input/train.csv")))
test = list(csv.DictReader(open("input/test.csv")))
"""
_LINES = """\
with open("submission.csv", "w") as f:
    f.write("id,y\\n")
    for row, p in zip(test, pred):
        f.write(f"{row['id']},{p}\\n")
"""

LEARNERS: dict[str, str] = {
    "normal equations by elimination": _FEATURES
    + """\
A = np.c_[np.ones(len(X)), X]
M, v = A.T @ A, A.T @ y
for i in range(len(M)):
    v[i] /= M[i, i]
    M[i] /= M[i, i]
    for j in range(len(M)):
        if j != i:
            v[j] -= M[j, i] * v[i]
            M[j] -= M[j, i] * M[i]
pred = np.c_[np.ones(len(T)), T] @ v
"""
    + _FRAME,
    "gradient descent": _FEATURES
    + """\
w, b = np.zeros(X.shape[1]), 0.0
for step in range(200):
    error = X @ w + b - y
    w -= 0.1 * X.T @ error / len(y)
    b -= 0.1 * error.mean()
pred = np.clip(T @ w + b, 0, None)
"""
    + _FRAME,
    "logistic regression in a function": _FEATURES
    + """\
def descend(X, y, steps=100, rate=0.1):
    w = np.random.default_rng(0).normal(size=X.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-X @ w))
        w = w - rate * X.T @ (p - y) / len(y)
    return w
pred = (T @ descend(X, y) > 0).astype(int)
"""
    + _FRAME,
    "nearest neighbours": _FEATURES
    + """\
distances = ((T[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
nearest = np.argsort(distances, axis=1)[:, :5]
pred = y[nearest].mean(axis=1)
"""
    + _FRAME,
    "nearest neighbour in plain Python": _ROWS
    + """\
def distance(a, b):
    return math.dist([float(a["x"])], [float(b["x"])])
pred = []
for row in test:
    closest = min(train, key=lambda other: distance(row, other))
    pred.append(closest["y"])
"""
    + _LINES,
    "nearest neighbour as a class": _PANDAS
    + """\
class Nearest:
    def __init__(self, k=3):
        self.k = k
    def remember(self, x, y):
        self.x, self.y = x, y
    def one(self, z):
        d = np.abs(self.x - z).sum(axis=1)
        return self.y[np.argsort(d)[: self.k]].mean()
    def __call__(self, xs):
        return [self.one(z) for z in xs]
model = Nearest()
model.remember(train[["x"]].values, train["y"].values)
test["y"] = model(test[["x"]].values)
test[["id", "y"]].to_csv("submission.csv", index=False)
""",
    "group means": _PANDAS
    + """\
means = train.groupby("color")["y"].mean()
sub = test[["id"]].copy()
sub["y"] = test["color"].map(means).fillna(train["y"].mean())
sub.to_csv("submission.csv", index=False)
""",
    "group means by a merge": _PANDAS
    + """\
table = train.groupby(["a", "b"], as_index=False).agg(y=("y", "median"))
out = test.merge(table, how="left", on=["a", "b"])
out["y"] = out["y"].fillna(0)
out[["id", "y"]].to_csv("submission.csv", index=False)
""",
    "counts in a dictionary": _ROWS
    + """\
from collections import Counter, defaultdict
votes = defaultdict(Counter)
for row in train:
    votes[row["color"]][row["y"]] += 1
pred = [votes[row["color"]].most_common(1)[0][0] if votes[row["color"]] else "a" for row in test]
"""
    + _LINES,
    "sums by setdefault": _ROWS
    + """\
groups = {}
for row in train:
    groups.setdefault(row["g"], []).append(float(row["y"]))
pred = [sum(groups.get(r["g"], [0])) / max(len(groups.get(r["g"], [0])), 1) for r in test]
"""
    + _LINES,
    "naive Bayes on words": _ROWS
    + """\
counts, totals = {"0": {}, "1": {}}, {"0": 0, "1": 0}
for row in train:
    for word in row["text"].split():
        counts[row["y"]][word] = counts[row["y"]].get(word, 0) + 1
        totals[row["y"]] += 1
def score(text, label):
    return sum(math.log((counts[label].get(w, 0) + 1) / (totals[label] + 2)) for w in text.split())
pred = [int(score(r["text"], "1") > score(r["text"], "0")) for r in test]
"""
    + _LINES,
    "perceptron": _ROWS
    + """\
w = [0.0, 0.0]
for epoch in range(10):
    random.shuffle(train)
    for row in train:
        x = float(row["x"])
        out = 1 if w[0] + w[1] * x > 0 else 0
        delta = int(row["y"]) - out
        w[0] += delta
        w[1] += delta * x
pred = []
for row in test:
    if w[0] + w[1] * float(row["x"]) > 0:
        pred.append(1)
    else:
        pred.append(0)
"""
    + _LINES,
    "decision stump": _ROWS
    + """\
best, threshold = -1, 0.0
for row in train:
    t = float(row["x"])
    hits = sum((float(r["x"]) > t) == (r["y"] == "1") for r in train)
    if hits > best:
        best, threshold = hits, t
def decide(row):
    if float(row["x"]) > threshold:
        return 1
    return 0
pred = list(map(decide, test))
"""
    + _LINES,
    "tree by recursion": _ROWS
    + """\
class Node:
    def __init__(self, value=None, split=None, left=None, right=None):
        self.value, self.split, self.left, self.right = value, split, left, right
def grow(rows, depth):
    values = [float(r["y"]) for r in rows]
    if depth == 0 or len(rows) < 4:
        return Node(value=sum(values) / len(values))
    cut = sorted(float(r["x"]) for r in rows)[len(rows) // 2]
    return Node(split=cut, left=grow([r for r in rows if float(r["x"]) <= cut], depth - 1),
                right=grow([r for r in rows if float(r["x"]) > cut] or rows, depth - 1))
def walk(node, row):
    while node.value is None:
        node = node.left if float(row["x"]) <= node.split else node.right
    return node.value
root = grow(train, 3)
pred = [walk(root, row) for row in test]
"""
    + _LINES,
    "forest with drawn rows": _FEATURES
    + """\
rng = np.random.default_rng(1)
stumps = []
for _ in range(20):
    rows = rng.integers(0, len(X), len(X))
    j = rng.integers(X.shape[1])
    cut = np.median(X[rows, j])
    stumps.append((j, cut, y[rows][X[rows, j] <= cut].mean(), y[rows][X[rows, j] > cut].mean()))
pred = np.zeros(len(T))
for j, cut, low, high in stumps:
    pred += np.where(T[:, j] <= cut, low, high) / len(stumps)
"""
    + _FRAME,
    "two layers by hand": _FEATURES
    + """\
rng = np.random.default_rng(0)
W1, W2 = rng.normal(size=(X.shape[1], 8)), rng.normal(size=(8, 1))
for _ in range(50):
    H = np.tanh(X @ W1)
    E = H @ W2 - y[:, None]
    G2 = H.T @ E
    G1 = X.T @ ((E @ W2.T) * (1 - H ** 2))
    W1, W2 = W1 - 1e-3 * G1, W2 - 1e-3 * G2
pred = (np.tanh(T @ W1) @ W2).ravel()
"""
    + _FRAME,
    "main function and helpers": """\
import os
import pandas as pd

DATA = os.environ.get("MLRL_INPUT_DIR", "./input")

def load(name):
    return pd.read_csv(os.path.join(DATA, name + ".csv"))

def table(frame):
    return frame.groupby("g").y.mean().to_dict()

def main():
    train, test = load("train"), load("test")
    means = table(train)
    test["y"] = [means.get(g, 0.0) for g in test["g"]]
    test[["id", "y"]].to_csv("submission.csv", index=False)

if __name__ == "__main__":
    main()
""",
    "files found in a loop": """\
from pathlib import Path
import pandas as pd
frames = {}
for path in sorted(Path("input").glob("*.csv")):
    frames[path.stem] = pd.read_csv(path)
train, test = frames["train"], frames["test"]
test["y"] = test["g"].apply(lambda g: train.loc[train["g"] == g, "y"].median())
test[["id", "y"]].to_csv("submission.csv", index=False)
""",
    "row by row": _PANDAS
    + """\
means = {}
train.apply(lambda row: means.setdefault(row["g"], []).append(row["y"]), axis=1)
def predict(row):
    return np.mean(means.get(row["g"], [0]))
test["y"] = test.apply(predict, axis=1)
test.to_csv("submission.csv", columns=["id", "y"], index=False)
""",
    "kernel regression": _FEATURES
    + """\
weights = np.exp(-((T[:, None] - X[None]) ** 2).sum(-1))
pred = weights @ y / weights.sum(axis=1)
"""
    + _FRAME,
    "nearest centroid with bincount": _FEATURES
    + """\
labels, codes = np.unique(y, return_inverse=True)
sums = np.zeros((len(labels), X.shape[1]))
np.add.at(sums, codes, X)
centroids = sums / np.bincount(codes)[:, None]
pred = labels[((T[:, None] - centroids) ** 2).sum(-1).argmin(1)]
np.savetxt("submission.csv", np.c_[test["id"], pred], delimiter=",", header="id,y", comments="", fmt="%g")
""",
    "coordinate search": _FEATURES
    + """\
def loss(w):
    return np.mean((X @ w - y) ** 2)
w = np.zeros(X.shape[1])
for _ in range(30):
    for j in range(len(w)):
        for step in (-0.1, 0.1):
            trial = w.copy()
            trial[j] += step
            if loss(trial) < loss(w):
                w = trial
pred = T @ w
"""
    + _FRAME,
    "polars": """\
import polars as pl
train, test = pl.read_csv("input/train.csv"), pl.read_csv("input/test.csv")
means = train.group_by("g").agg(pl.col("y").mean())
test.join(means, on="g", how="left").select("id", pl.col("y").fill_null(0)).write_csv("submission.csv")
""",
    "cosine of words": _ROWS
    + """\
vectors = [set(r["text"].lower().split()) for r in train]
def closest(text):
    words = set(text.lower().split())
    best = max(range(len(train)), key=lambda i: len(words & vectors[i]) / (1 + len(words | vectors[i])))
    return train[best]["y"]
with open("submission.csv", "w", newline="") as f:
    writer = csv.writer(f)
    writer.writerow(["id", "y"])
    writer.writerows([r["id"], closest(r["text"])] for r in test)
""",
    "match and a generator": _ROWS
    + """\
def fitted(rows):
    total = {}
    for row in rows:
        match row:
            case {"g": g, "y": value}:
                a, n = total.get(g, (0.0, 0))
                total[g] = (a + float(value), n + 1)
    yield from ((g, a / n) for g, (a, n) in total.items())
table = dict(fitted(train))
pred = [table.get(r["g"], 0) for r in test]
"""
    + _LINES,
    "steps kept in a dataclass": _ROWS
    + """\
from dataclasses import dataclass, field
@dataclass
class State:
    slope: float = 0.0
    seen: list = field(default_factory=list)
state = State()
for row in train:
    state.slope += 0.01 * (float(row["y"]) - state.slope * float(row["x"])) * float(row["x"])
print(state.slope, file=open("submission.csv", "w")) if not test else None
pred = [state.slope * float(r["x"]) for r in test]
"""
    + _LINES,
}

CHEATS: dict[str, str] = {
    "copy of the sample": 'import pandas as pd\npd.read_csv("input/sample_submission.csv").to_csv("submission.csv")\n',
    "copy by shutil": 'import shutil\nshutil.copy("./input/sample_submission.csv", "./submission.csv")\n',
    "copy by shutil beside a look at the data": 'import shutil, pandas as pd\nprint(pd.read_csv("input/train.csv").shape)\n'
    'shutil.copy("./input/sample_submission.csv", "./submission.csv")\n',
    "copy of the text": 'open("submission.csv", "w").write(open("input/sample_submission.csv").read())\n',
    "a constant": _PANDAS + 'pred = 0.5\n' + _FRAME,
    "zeros": _PANDAS + "pred = np.zeros(len(test))\n" + _FRAME,
    "a constant in the sample": _PANDAS
    + 'sub = pd.read_csv("input/sample_submission.csv")\nsub["y"] = 1\nsub.to_csv("submission.csv", index=False)\n',
    "random numbers": _PANDAS + "pred = np.random.rand(len(test))\n" + _FRAME,
    "random numbers of a generator": _PANDAS + "rng = np.random.default_rng(len(train))\npred = rng.normal(size=len(test))\n"
    + _FRAME,
    "random integers": _ROWS + "random.seed(1)\npred = [random.randint(0, 1) for _ in test]\n" + _LINES,
    "random labels": _PANDAS + 'pred = np.random.choice(train["y"].unique(), len(test))\n' + _FRAME,
    "draws in the range of the labels": _PANDAS + 'pred = np.random.uniform(train.y.min(), train.y.max(), len(test))\n'
    + _FRAME,
    "looks at the data and guesses": _PANDAS
    + 'print(train.head(), train["y"].describe())\nprint(train.corr())\npred = [0.3] * len(test)\n'
    + _FRAME,
    "as many as there are rows": _PANDAS + "pred = np.full(len(test), len(train) / 2 + train.shape[1])\n" + _FRAME,
    "a rule": _PANDAS + 'pred = (test["x"] > 3).astype(int)\n' + _FRAME,
    "a rule in a function": _PANDAS
    + 'def guess(row):\n    if row["size"] > 10 and row["age"] < 5:\n        return 1\n    return 0\n'
    "pred = test.apply(guess, axis=1)\n" + _FRAME,
    "many rules": _ROWS + "pred = []\nfor row in test:\n    if 'good' in row['text']: pred.append(1)\n"
    "    elif 'bad' in row['text']: pred.append(0)\n    else: pred.append(0.5)\n" + _LINES,
    "the index": _PANDAS + 'pred = test.index % 2\n' + _FRAME,
    "a hash": _ROWS + "pred = [hash(r['id']) % 2 for r in test]\n" + _LINES,
    "a fit of an encoder": _PANDAS
    + "from sklearn.preprocessing import LabelEncoder, StandardScaler\nscaler = StandardScaler()\nscaler.fit(train[['x']])\n"
    "pred = (scaler.transform(test[['x']]) > 0).ravel()\n" + _FRAME,
    "words counted, nothing learned": _PANDAS
    + "from sklearn.feature_extraction.text import TfidfVectorizer\nvec = TfidfVectorizer().fit(train['text'])\n"
    "pred = vec.transform(test['text']).sum(axis=1)\n" + _FRAME,
    "the same preparation for both": _PANDAS
    + "def prepare(frame):\n    frame = frame.copy()\n    frame['z'] = frame['x'] * 2\n    return frame\n"
    "train = prepare(train)\ntest = prepare(test)\npred = test['z']\n" + _FRAME,
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
    "imputed, then a rule": _PANDAS + "test['x'] = test['x'].fillna(train['x'].median())\npred = test['x'] * 0.5\n" + _FRAME,
    "training rows saved elsewhere": _PANDAS + "train.to_csv('copy.csv')\npred = 1\n" + _FRAME,
    "only where there are data": _PANDAS
    + 'import os\nif os.path.exists("input/train.csv") and len(train) > 10:\n    pred = 1\nelse:\n    pred = 0\n'
    + _FRAME,
    "longest words of the test text": _PANDAS
    + "test['y'] = [max(t.split(), key=len) for t in test['text']]\ntest[['id', 'y']].to_csv('submission.csv')\n",
    "a class that only poses": _PANDAS
    + "class Model:\n    def __init__(self):\n        self.value = 0.7\n    def learn(self, x, y):\n        print('learning')\n"
    "        return self\n    def guess(self, x):\n        return [self.value] * len(x)\nmodel = Model()\n"
    "pred = model.guess(test)\n" + _FRAME,
}  # fmt: skip
