"""Synthetic micro competitions: a hidden rule plus noise, from a seeded generator (method.md 12.2).

200 rows, so that programs run in a fraction of a second. The board's teams know the hidden rule to a degree that
falls from all to almost nothing; a generated competition is kept only when that makes scores strictly monotone and
every one of them better than the sample submission.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import random
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mlrl_core.competitions.builtin.tables import Row, Table

FEATURES = ("a", "b", "c", "d", "e", "f")
TEAMS = 100


@dataclass(frozen=True, slots=True)
class SyntheticSource:
    """A generated table: six numeric features, one categorical, the target, and (last column, never written to a
    prepared folder) the ``signal``: the target without its noise."""

    seed: int
    classification: bool
    rows: int = 200

    def table(self) -> Table:
        """The same table on every machine: only ``random.Random.random`` and arithmetic are used."""
        rng = random.Random(self.seed)
        weights = [2 * rng.random() - 1 for _ in FEATURES]
        levels = {level: 2 * rng.random() - 1 for level in ("red", "green", "blue")}
        rows: list[Row] = []
        for _ in range(self.rows):
            values = [round(4 * rng.random() - 2, 3) for _ in FEATURES]
            level = rng.choice(list(levels))
            linear = sum(w * v for w, v in zip(weights, values, strict=True)) + levels[level]
            # The rule is no straight line, so that a tree ensemble can beat a linear model.
            signal = linear + 1.5 * math.sin(2 * values[0]) + (1.5 if values[1] * values[2] > 0 else -1.5)
            if self.classification:
                chance = 1 / (1 + math.exp(-1.5 * signal))
                target, signal = str(int(rng.random() < chance)), chance
            else:
                noise = sum(rng.random() for _ in range(12)) - 6  # close to a standard normal draw
                target = repr(round(signal + 0.3 * noise, 4))
            rows.append([*map(repr, values), level, target, repr(signal)])
        return Table([*FEATURES, "level", "target", "signal"], rows)

    def label_files(self) -> list[Path]:
        """None: no installed file holds the labels."""
        return []

    def digest(self) -> str:
        """Changes with the generator's own source."""
        text = f"{self.seed} {self.rows} {self.classification} {inspect.getsource(sys.modules[__name__])}"
        return hashlib.sha256(text.encode()).hexdigest()


def board_scores(targets: list[float], signals: list[float], constant: float, classification: bool) -> list[float]:
    """Scores of the board's teams, best first: team i blends the rule and the ``constant`` prediction by 1 - i / 100.

    RMSE, or log loss for a classification; ``signals`` are then probabilities.
    """
    shares = [1 - team / TEAMS for team in range(TEAMS)]
    blends = ([share * s + (1 - share) * constant for s in signals] for share in shares)
    return [blend_score(targets, blend, classification) for blend in blends]


def blend_score(targets: list[float], predicted: list[float], classification: bool) -> float:
    """RMSE, or log loss of the probability of class 1, to five digits."""
    pairs = list(zip(targets, predicted, strict=True))
    if classification:
        return round(sum(-math.log(p if t == 1 else 1 - p) for t, p in pairs) / len(pairs), 5)
    return round(math.sqrt(sum((t - p) ** 2 for t, p in pairs) / len(pairs)), 5)


def is_usable(scores: list[float], sample_score: float) -> bool:
    """Strictly monotone (losses rise) and all better than the sample submission."""
    return all(a < b for a, b in pairwise(scores)) and scores[-1] < sample_score
