"""From two tables to two arrays: the columns are checked and the rows of submission and answers are paired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlrl_core.competitions.columns import Column
from mlrl_core.competitions.competition import Rules
from mlrl_core.competitions.metrics import METRICS, Array, MetricError, label_codes
from mlrl_core.competitions.reader import CsvTable
from mlrl_core.competitions.reasons import InvalidSubmission


@dataclass(frozen=True, slots=True)
class Pairs:
    """True and predicted values in the same row order: shape [n], or [n, k] for a metric of several columns.

    ``answer_rows`` holds the row of the answers file that each pair comes from.
    """

    truth: Array
    predicted: Array
    answer_rows: Array


def pair(submission: CsvTable, answers: CsvTable, rules: Rules, metric: str) -> Pairs:
    """Check ``submission`` against ``rules`` and pair it with ``answers``. Raises InvalidSubmission."""
    _check_answers(answers, rules)
    _check_columns(submission.header, rules)
    if submission.n_rows != answers.n_rows:
        raise InvalidSubmission("wrong_row_count", f"{submission.n_rows} rows, {answers.n_rows} are expected")
    kind = METRICS[metric].kind
    columns = [submission.column(name) for name in rules.target_columns]
    if kind in ("number", "chance"):
        _check_numbers(columns, rules)
    if rules.pairing == "by_id":
        assert rules.id_column is not None
        order, answer_order = _matched_order(submission.column(rules.id_column), answers.column(rules.id_column))
    else:
        order = answer_order = np.arange(answers.n_rows)
    truth_columns = [answers.column(name) for name in rules.target_columns]
    if kind == "label":
        truth, predicted = _labels(truth_columns[0], columns[0])
    elif kind == "text":
        truth, predicted = _texts(truth_columns[0]), _texts(columns[0])
    else:
        multi = METRICS[metric].multi
        is_class = kind == "chance" and truth_columns[0].kind == "text" and not truth_columns[0].has_missing
        truth = truth_columns[0].values if is_class else _matrix(truth_columns, multi)
        predicted = _matrix(columns, multi)
    return Pairs(truth[answer_order], predicted[order], answer_order)


def _check_answers(answers: CsvTable, rules: Rules) -> None:
    needed = [*([rules.id_column] if rules.id_column and rules.pairing == "by_id" else []), *rules.target_columns]
    if missing := [name for name in needed if name not in answers.header]:
        raise InvalidSubmission("bad_answers", f"the answers lack {', '.join(missing[:5])}")
    if answers.n_rows == 0:
        raise InvalidSubmission("bad_answers", "the answers have no rows")


def _check_columns(header: list[str], rules: Rules) -> None:
    needed = [*([rules.id_column] if rules.id_column and rules.pairing == "by_id" else []), *rules.target_columns]
    if missing := [name for name in needed if name not in header]:
        raise InvalidSubmission(
            "missing_columns", f"required: {', '.join(missing[:5])}; found: {', '.join(header[:5])}"
        )
    if rules.columns != "ignore" and len(header) != len(needed):
        extra = [name for name in header if name not in needed]
        raise InvalidSubmission("unexpected_columns", f"not wanted: {', '.join(extra[:5])}")
    if rules.columns == "refuse_unless_id_first" and header[0] != rules.id_column:
        raise InvalidSubmission("unexpected_columns", f"the first column must be {rules.id_column}")


def _check_numbers(columns: list[Column], rules: Rules) -> None:
    if not all(column.is_numeric for column in columns):
        raise InvalidSubmission("not_numeric")
    values = np.stack([column.floats() for column in columns], axis=1)
    if np.isnan(values).any():
        raise InvalidSubmission("missing_values")
    if rules.value_range is not None:
        low, high = rules.value_range
        if ((values < low) | (values > high)).any():
            raise InvalidSubmission("out_of_range", f"allowed: {low:g} to {high:g}, without tolerance")
    if np.isinf(values).any():
        raise InvalidSubmission("infinite_values")
    if rules.row_sum is not None:
        sums = values.sum(axis=1)
        good = np.isclose(sums, 1, atol=1e-6) if rules.row_sum == "isclose" else np.round(sums, 6) == 1
        if not good.all():
            raise InvalidSubmission("row_sum", f"row {int(np.argmin(good)) + 1} sums to {sums[np.argmin(good)]:.9g}")


def _matched_order(ids: Column, answer_ids: Column) -> tuple[Array, Array]:
    """Row orders that sort both sides by id (stable: equal ids pair in file order); the sorted ids must be equal.

    Numbers are compared as numpy compares them, after a cast to their common type: 4 equals 4.0, and ids beyond
    2**53 that were written as floats collapse. A missing id equals nothing.
    """
    if ids.is_numeric != answer_ids.is_numeric or ids.has_missing or answer_ids.has_missing:
        raise InvalidSubmission("wrong_ids")
    order, answer_order = _stable_order(ids.values), _stable_order(answer_ids.values)
    if not np.array_equal(ids.values[order], answer_ids.values[answer_order]):
        raise InvalidSubmission("wrong_ids")
    return order, answer_order


def _stable_order(values: Array) -> Array:
    if values.dtype == object:
        cells: list[Any] = values.tolist()
        return np.array(sorted(range(len(cells)), key=cells.__getitem__), dtype=np.intp)
    return np.argsort(values, kind="stable")


def _labels(truth: Column, predicted: Column) -> tuple[Array, Array]:
    if predicted.has_missing:
        raise InvalidSubmission("missing_values")
    if truth.has_missing:
        raise InvalidSubmission("bad_answers", "an answer is missing")
    if truth.is_numeric != predicted.is_numeric:
        raise InvalidSubmission("wrong_label_type")
    if predicted.kind == "float" and np.isinf(predicted.values).any():
        raise InvalidSubmission("infinite_values")
    try:
        true_codes = label_codes(truth.values, truth.kind)
    except MetricError as error:
        raise InvalidSubmission("bad_answers", error.detail) from None
    return true_codes, label_codes(predicted.values, predicted.kind)


def _texts(column: Column) -> Array:
    """Text of every cell: missing is empty, a column of numbers or booleans is written as Python writes them."""
    if column.kind == "text":
        cells = ["" if cell is None else cell for cell in column.values]
    else:
        cells = ["" if cell != cell else str(cell) for cell in column.values.tolist()]
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _matrix(columns: list[Column], multi: bool) -> Array:
    if not all(column.is_numeric for column in columns):
        raise InvalidSubmission("bad_answers", "the answers are not numbers")  # predictions were checked before
    values = np.stack([column.floats() for column in columns], axis=1)
    if np.isnan(values).any():
        raise InvalidSubmission("bad_answers", "an answer is missing")
    return values if multi else values[:, 0]
