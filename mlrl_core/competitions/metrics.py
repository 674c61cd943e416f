"""The metrics: one small pure function each, and the table that names them.

Scores are those of scikit-learn 1.9 and scipy 1.17 (what MLE-bench calls), written out on numpy so that a grade costs
milliseconds and does not change with an installed version; tests compare them with those libraries. Every function
takes the true and the predicted values, ``float64`` unless said otherwise: shape [n] for one target, [n, k] for
several. It raises ``MetricError`` where the metric is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]


class MetricError(Exception):
    """The metric can't be computed; ``reason`` is from the fixed vocabulary."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Metric:
    """``kind`` says what the targets are: ``number`` (float64), ``chance`` (a number is predicted for the larger of two
    classes, which may be words), ``label`` (whole numbers, booleans or words, see ``label_codes``) or ``text`` (str).
    ``perfect`` is the score of a perfect submission."""

    function: Callable[[Array, Array], float]
    is_lower_better: bool
    kind: Literal["number", "chance", "label", "text"]
    multi: bool
    perfect: float


def auc(truth: Array, predicted: Array) -> float:
    """Area under the ROC curve: the chance that a positive is ranked above a negative, ties count one half.

    ``truth`` holds two values, the larger is the positive one. NaN with one class only.
    """
    classes = np.unique(truth)
    if len(classes) > 2:
        raise MetricError("bad_answers", f"AUC wants two classes in the answers, there are {len(classes)}")
    positive = truth == classes[-1]
    n_positive = int(positive.sum())
    n_negative = len(truth) - n_positive
    if len(classes) < 2:
        return math.nan
    _, inverse, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse.ravel()]
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def mean_column_auc(truth: Array, predicted: Array) -> float:
    """Mean of the AUC of every column."""
    return np.float64(np.mean([auc(truth[:, c], predicted[:, c]) for c in range(truth.shape[1])]))


def accuracy(truth: Array, predicted: Array) -> float:
    """Share of equal labels (codes)."""
    return float(np.mean(truth == predicted))


def quadratic_weighted_kappa(truth: Array, predicted: Array) -> float:
    """Cohen's kappa with quadratic weights. Labels weigh by their index in the sorted union of those present, not by
    their value: 1, 3, 6 count as 0, 1, 2. NaN when only one label is present."""
    labels, codes = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    n = len(labels)
    true_codes, predicted_codes = codes[: len(truth)], codes[len(truth) :]
    observed = np.zeros((n, n))
    np.add.at(observed, (predicted_codes, true_codes), 1)
    expected = np.outer(observed.sum(axis=1), observed.sum(axis=0)) / len(truth)
    weights = np.subtract.outer(np.arange(n), np.arange(n)) ** 2
    chance = (weights * expected).sum()
    return float(1 - (weights * observed).sum() / chance) if chance else math.nan


def log_loss(truth: Array, predicted: Array) -> float:
    """Binary log loss of the probability of the larger class; probabilities are clipped at float64 epsilon."""
    positive = _two_classes(truth)
    return multiclass_log_loss(np.stack([1 - positive, positive], 1), np.stack([1 - predicted, predicted], 1))


def multiclass_log_loss(truth: Array, predicted: Array) -> float:
    """Mean of -log of the probability given to the true class. ``truth`` is one-hot; probabilities are clipped to
    [eps, 1 - eps] of float64 (so a certain wrong row costs 36.04365) and not normalised."""
    if not np.isin(truth, (0, 1)).all():
        raise MetricError("bad_answers", "the answers of a log loss must be 0 or 1")
    eps = np.finfo(np.float64).eps
    clipped = np.clip(predicted, eps, 1 - eps)
    return float(np.mean(-np.where(truth == 1, np.log(clipped), 0.0).sum(axis=1)))


def rmsle(truth: Array, predicted: Array) -> float:
    """Root mean squared logarithmic error, ``sqrt(mean((log(1 + a) - log(1 + p))^2))``; values must be above -1."""
    if (predicted <= -1).any():
        raise MetricError("out_of_range", "RMSLE wants predictions above -1")
    if (truth <= -1).any():
        raise MetricError("bad_answers", "RMSLE wants answers above -1")
    return float(np.sqrt(np.mean((np.log1p(truth) - np.log1p(predicted)) ** 2)))


def mean_column_rmsle(truth: Array, predicted: Array) -> float:
    """Mean of the RMSLE of every column."""
    return sum(rmsle(truth[:, c], predicted[:, c]) for c in range(truth.shape[1])) / truth.shape[1]


def rmse(truth: Array, predicted: Array) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((truth - predicted) ** 2)))


def mae(truth: Array, predicted: Array) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(truth - predicted)))


def pearson(truth: Array, predicted: Array) -> float:
    """Pearson's correlation; NaN when either side is constant."""
    if len(truth) < 2:
        raise MetricError("bad_answers", "a correlation wants two rows or more")
    if (truth == truth[0]).all() or (predicted == predicted[0]).all():
        return math.nan
    unit_truth, unit_predicted = _unit(truth - truth.mean()), _unit(predicted - predicted.mean())
    return np.clip(unit_truth @ unit_predicted, -1.0, 1.0)


def word_jaccard(truth: Array, predicted: Array) -> float:
    """Mean Jaccard index of the sets of lower-cased words. Undefined for the whole file when a pair is empty on both
    sides (MLE-bench divides by zero there)."""
    scores = []
    for true_text, predicted_text in zip(truth, predicted, strict=True):
        a, b = set(true_text.lower().split()), set(predicted_text.lower().split())
        if not a and not b:
            raise MetricError("undefined_score", "answer and prediction are both empty in a row")
        common = len(a & b)
        scores.append(common / (len(a) + len(b) - common))
    return float(np.mean(scores))


def label_codes(values: Array, kind: str) -> Array:
    """Labels as comparable codes: words stay words, whole numbers and booleans become float64.

    Raises MetricError for numbers that are not whole (scikit-learn takes them for a regression target).
    """
    if kind == "text":
        return values
    numbers = values.astype(np.float64)
    if (numbers != np.trunc(numbers)).any():
        raise MetricError("not_a_label", "a predicted label is not a whole number")
    return numbers


def _two_classes(truth: Array) -> Array:
    classes = np.unique(truth)
    if len(classes) != 2:
        raise MetricError("bad_answers", f"this metric wants two classes in the answers, there are {len(classes)}")
    return (truth == classes[1]).astype(np.float64)


def _unit(centred: Array) -> Array:
    # Scaled first, so that squares of very large or very small values neither overflow nor vanish.
    scaled = centred / np.abs(centred).max()
    return scaled / np.sqrt(scaled @ scaled)


METRICS: dict[str, Metric] = {
    "auc": Metric(auc, False, "chance", False, 1.0),
    "mean_column_auc": Metric(mean_column_auc, False, "number", True, 1.0),
    "accuracy": Metric(accuracy, False, "label", False, 1.0),
    "quadratic_weighted_kappa": Metric(quadratic_weighted_kappa, False, "label", False, 1.0),
    "log_loss": Metric(log_loss, True, "chance", False, 0.0),
    "multiclass_log_loss": Metric(multiclass_log_loss, True, "number", True, 0.0),
    "rmsle": Metric(rmsle, True, "number", False, 0.0),
    "mean_column_rmsle": Metric(mean_column_rmsle, True, "number", True, 0.0),
    "rmse": Metric(rmse, True, "number", False, 0.0),
    "mae": Metric(mae, True, "number", False, 0.0),
    "pearson": Metric(pearson, False, "number", False, 1.0),
    "word_jaccard": Metric(word_jaccard, False, "text", False, 1.0),
}
