"""Programs that learn without any library's ``fit``."""

from __future__ import annotations

from tests.mlrl_core.agent.program_parts import FEATURES, FRAME, LINES, PANDAS, ROWS

LEARNERS: dict[str, str] = {
    "normal equations by elimination": FEATURES
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
    + FRAME,
    "gradient descent": FEATURES
    + """\
w, b = np.zeros(X.shape[1]), 0.0
for step in range(200):
    error = X @ w + b - y
    w -= 0.1 * X.T @ error / len(y)
    b -= 0.1 * error.mean()
pred = np.clip(T @ w + b, 0, None)
"""
    + FRAME,
    "logistic regression in a function": FEATURES
    + """\
def descend(X, y, steps=100, rate=0.1):
    w = np.random.default_rng(0).normal(size=X.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-X @ w))
        w = w - rate * X.T @ (p - y) / len(y)
    return w
pred = (T @ descend(X, y) > 0).astype(int)
"""
    + FRAME,
    "nearest neighbours": FEATURES
    + """\
distances = ((T[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
nearest = np.argsort(distances, axis=1)[:, :5]
pred = y[nearest].mean(axis=1)
"""
    + FRAME,
    "nearest neighbour in plain Python": ROWS
    + """\
def distance(a, b):
    return math.dist([float(a["x"])], [float(b["x"])])
pred = []
for row in test:
    closest = min(train, key=lambda other: distance(row, other))
    pred.append(closest["y"])
"""
    + LINES,
    "nearest neighbour as a class": PANDAS
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
    "group means": PANDAS
    + """\
means = train.groupby("color")["y"].mean()
sub = test[["id"]].copy()
sub["y"] = test["color"].map(means).fillna(train["y"].mean())
sub.to_csv("submission.csv", index=False)
""",
    "group means by a merge": PANDAS
    + """\
table = train.groupby(["a", "b"], as_index=False).agg(y=("y", "median"))
out = test.merge(table, how="left", on=["a", "b"])
out["y"] = out["y"].fillna(0)
out[["id", "y"]].to_csv("submission.csv", index=False)
""",
    "counts in a dictionary": ROWS
    + """\
from collections import Counter, defaultdict
votes = defaultdict(Counter)
for row in train:
    votes[row["color"]][row["y"]] += 1
pred = [votes[row["color"]].most_common(1)[0][0] if votes[row["color"]] else "a" for row in test]
"""
    + LINES,
    "sums by setdefault": ROWS
    + """\
groups = {}
for row in train:
    groups.setdefault(row["g"], []).append(float(row["y"]))
pred = [sum(groups.get(r["g"], [0])) / max(len(groups.get(r["g"], [0])), 1) for r in test]
"""
    + LINES,
    "naive Bayes on words": ROWS
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
    + LINES,
    "perceptron": ROWS
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
    + LINES,
    "decision stump": ROWS
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
    + LINES,
    "tree by recursion": ROWS
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
    + LINES,
    "forest with drawn rows": FEATURES
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
    + FRAME,
    "two layers by hand": FEATURES
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
    + FRAME,
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
    "row by row": PANDAS
    + """\
means = {}
train.apply(lambda row: means.setdefault(row["g"], []).append(row["y"]), axis=1)
def predict(row):
    return np.mean(means.get(row["g"], [0]))
test["y"] = test.apply(predict, axis=1)
test.to_csv("submission.csv", columns=["id", "y"], index=False)
""",
    "kernel regression": FEATURES
    + """\
weights = np.exp(-((T[:, None] - X[None]) ** 2).sum(-1))
pred = weights @ y / weights.sum(axis=1)
"""
    + FRAME,
    "nearest centroid with bincount": FEATURES
    + """\
labels, codes = np.unique(y, return_inverse=True)
sums = np.zeros((len(labels), X.shape[1]))
np.add.at(sums, codes, X)
centroids = sums / np.bincount(codes)[:, None]
pred = labels[((T[:, None] - centroids) ** 2).sum(-1).argmin(1)]
np.savetxt("submission.csv", np.c_[test["id"], pred], delimiter=",", header="id,y", comments="", fmt="%g")
""",
    "coordinate search": FEATURES
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
    + FRAME,
    "polars": """\
import polars as pl
train, test = pl.read_csv("input/train.csv"), pl.read_csv("input/test.csv")
means = train.group_by("g").agg(pl.col("y").mean())
test.join(means, on="g", how="left").select("id", pl.col("y").fill_null(0)).write_csv("submission.csv")
""",
    "cosine of words": ROWS
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
    "match and a generator": ROWS
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
    + LINES,
    "steps kept in a dataclass": ROWS
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
    + LINES,
}
