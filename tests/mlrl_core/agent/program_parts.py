"""How programs of the tests begin and end."""

from __future__ import annotations

PANDAS = """\
import numpy as np
import pandas as pd
train = pd.read_csv("./input/train.csv")
test = pd.read_csv("./input/test.csv")
"""
FEATURES = (
    PANDAS
    + """\
features = [c for c in train.columns if c not in ("id", "y")]
X, y = train[features].to_numpy(float), train["y"].to_numpy(float)
T = test[features].to_numpy(float)
"""
)
FRAME = 'pd.DataFrame({"id": test["id"], "y": pred}).to_csv("submission.csv", index=False)\n'
ROWS = """\
import csv, math, random
train = list(csv.DictReader(open("input/train.csv")))
test = list(csv.DictReader(open("input/test.csv")))
"""
LINES = """\
with open("submission.csv", "w") as f:
    f.write("id,y\\n")
    for row, p in zip(test, pred):
        f.write(f"{row['id']},{p}\\n")
"""
