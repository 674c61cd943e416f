"""The type of a whole column of text cells, and its values (grading rules section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np

from mlrl_core.competitions.words import MISSING

Kind = Literal["int", "float", "bool", "text"]

_BOOLS = frozenset(("true", "false"))  # in any case
_SPACE = " \t\n\v\f\r"  # allowed around a number
_INT_CHARS = frozenset("0123456789+-" + _SPACE)
_FLOAT_CHARS = _INT_CHARS | frozenset(".eE")
_INFINITY = frozenset(("inf", "infinity"))


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one column. ``values`` has dtype bool, float64 (missing = NaN) or, for ``int``, the first of int64,
    uint64 and Python integers that holds them all; for ``text`` it is an object array of str with None for missing
    (also booleans with a missing one among them)."""

    kind: Kind
    values: np.ndarray[Any, Any]
    has_missing: bool

    @property
    def is_numeric(self) -> bool:
        return self.kind != "text"

    def floats(self) -> np.ndarray[Any, Any]:
        """The values as float64; only for numeric columns."""
        return self.values.astype(np.float64)


def infer(cells: Sequence[str]) -> Column:
    """The column that ``cells`` make: one type for all of them, the narrowest of bool, int, float, text."""
    distinct = set(cells)
    missing = distinct & MISSING
    present = distinct - missing
    if not present:
        return Column("float", np.full(len(cells), np.nan), bool(cells))
    if {cell.lower() for cell in islice(present, 9)} <= _BOOLS and {cell.lower() for cell in present} <= _BOOLS:
        if not missing:
            return Column("bool", np.array([cell.lower() == "true" for cell in cells], dtype=bool), False)
        return Column("text", _objects([None if cell in missing else cell.capitalize() for cell in cells]), True)
    numbers = _numbers(
        cells, missing, frozenset().union(*present) if len(present) < 64 else frozenset("".join(present))
    )
    if numbers is not None:
        return Column("float" if numbers.dtype == np.float64 else "int", numbers, bool(missing))
    if missing:
        return Column("text", _objects([None if cell in missing else cell for cell in cells]), True)
    return Column("text", _objects(cells), False)


def _numbers(cells: Sequence[str], missing: set[str], characters: frozenset[str]) -> np.ndarray[Any, Any] | None:
    """int64 or float64 values, or None when a cell is no number. Python's own parsers are laxer (underscores, other
    scripts' digits, any case of nan), so the characters are checked first."""
    if characters <= _INT_CHARS and not missing:
        try:
            return _integers(list(map(int, cells)))
        except ValueError:
            return None
    if characters <= _FLOAT_CHARS:
        parse: Callable[[str], float] = float
    elif any(character.lower() in "infty" for character in characters):
        parse = _float_or_infinity
    else:
        return None
    try:
        if missing:
            return np.array([np.nan if cell in missing else parse(cell) for cell in cells])
        return np.array(list(map(parse, cells)))
    except ValueError:
        return None


def _integers(numbers: list[int]) -> np.ndarray[Any, Any]:
    low, high = min(numbers), max(numbers)
    if low >= -(2**63) and high < 2**63:
        return np.array(numbers, dtype=np.int64)
    if low >= 0 and high < 2**64:
        return np.array(numbers, dtype=np.uint64)
    return _objects(numbers)


def _float_or_infinity(cell: str) -> float:
    if not _FLOAT_CHARS.issuperset(cell) and cell.lower().lstrip("+-") not in _INFINITY:
        raise ValueError(cell)
    return float(cell)


def _objects(cells: Sequence[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array
