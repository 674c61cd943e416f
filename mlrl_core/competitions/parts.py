"""Two halves of the answers: reward is paid on one, results are reported on the other (method.md section 13).

Training on the score of the very labels that a result is reported on is hill climbing on the test set.
"""

from __future__ import annotations

import hashlib
import random
from typing import Literal

import numpy as np

from mlrl_core.competitions.metrics import Array

Part = Literal["all", "reward", "report"]
SPLIT_SEED = 0
MIN_ROWS = 20  # below this a half is too small to say anything: both parts are then all rows
TOO_SMALL = "too_few_rows_to_split"


def part_mask(truth: Array, answer_rows: Array, competition_id: str, part: Part) -> Array:
    """Which pairs belong to ``part``: a boolean array [n]. Halves are disjoint and cover every row.

    Stratified: rows are put in the order of their true values (ties in a seeded order), and of each two neighbours one
    goes to either half at random, so that classes and the range of a number are alike in both. Depends on the answers
    only, never on a submission.
    """
    n = len(truth)
    if part == "all" or n < MIN_ROWS:
        return np.ones(n, dtype=bool)
    seed = hashlib.sha256(f"{competition_id} {SPLIT_SEED}".encode()).digest()
    rng = random.Random(int.from_bytes(seed[:8], "big"))
    by_row = np.array([rng.random() for _ in range(n)])
    draws = by_row[answer_rows]
    order = _value_order(truth, draws)
    in_reward = np.empty(n, dtype=bool)
    firsts = draws[order[0::2]] < 0.5
    in_reward[order[0::2]] = firsts
    in_reward[order[1::2]] = ~firsts[: n // 2]
    return in_reward if part == "reward" else ~in_reward


def _value_order(truth: Array, draws: Array) -> Array:
    if truth.dtype == object:
        cells = truth.tolist()
        return np.array(sorted(range(len(cells)), key=lambda i: (cells[i], draws[i])), dtype=np.intp)
    columns = truth.reshape(len(truth), -1).astype(np.float64)
    return np.lexsort((draws, *(columns[:, c] for c in range(columns.shape[1] - 1, -1, -1))))
