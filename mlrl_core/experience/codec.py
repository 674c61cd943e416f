"""Records to plain values and back: JSON for hand-over files, flat columns for parquet.

Everything follows from the records' type hints, so a field added to a record is stored without a change here.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from typing import Any, TypeVar, cast

import polars as pl

from mlrl_core.records import Experience

R = TypeVar("R")

# Columns of nested records carry the field's name; a Solution is what a row is about, so its columns carry none.
_PREFIX = {"solution": ""}


def encode(record: Any) -> dict[str, Any]:
    """A record as JSON-ready values (tuples become lists)."""
    return {f.name: _encode(getattr(record, f.name)) for f in dataclasses.fields(record)}


def decode(cls: type[R], data: dict[str, Any]) -> R:
    """The record that ``encode`` was given. A field missing in ``data`` takes its default; without one, KeyError."""
    values: dict[str, Any] = {}
    for name, hint, required in _fields(cast(Any, cls)):
        if name in data:
            values[name] = _decode(hint, data[name])
        elif required:
            raise KeyError(f"{cls.__name__}.{name}")
    return cls(**values)


def to_columns(experience: Experience) -> dict[str, Any]:
    """One flat row: ``solution_id, code, program_source, execution_duration_s, score_raw, reward_total, ...``."""
    row: dict[str, Any] = {}
    for path, column, hint in _columns(Experience):
        value: Any = experience
        for name in path:
            value = None if value is None else getattr(value, name)
        if value is not None and _is_dict(hint):
            value = json.dumps(value, sort_keys=True)
        if column in row and row[column] != value:
            raise ValueError(f"{column}: {row[column]!r} in the solution but {value!r} in the experience")
        row[column] = list(value) if isinstance(value, tuple) else value
    return row


def from_columns(row: dict[str, Any]) -> Experience:
    """The counterpart of ``to_columns``. Columns that an older file lacks take the field's default."""
    tree = _nest(Experience, row, "")
    assert tree is not None, "an experience has an outcome"
    return decode(Experience, tree)


@cache
def schema() -> dict[str, Any]:
    """Column name to polars type of an experience row."""
    return {column: _polars_type(hint) for _, column, hint in _columns(Experience)}


def _nest(cls: type, row: dict[str, Any], prefix: str) -> dict[str, Any] | None:
    tree: dict[str, Any] = {}
    for name, hint, required in _fields(cls):
        inner = _record_type(hint)
        if inner is not None:
            tree[name] = _nest(inner, row, _prefixed(prefix, name))
            continue
        value = row.get(prefix + name)
        # A null where the record allows none is a column that the file lacks: `decode` takes the default.
        if value is not None or required or hint is not _plain(hint):
            tree[name] = json.loads(value) if value is not None and _is_dict(hint) else value
    return tree if any(value is not None for value in tree.values()) else None


def _prefixed(prefix: str, name: str) -> str:
    return prefix + _PREFIX.get(name, f"{name}_")


@cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return tuple(
        (f.name, hints[f.name], f.default is missing and f.default_factory is missing) for f in dataclasses.fields(cls)
    )


@cache
def _columns(cls: type, path: tuple[str, ...] = (), prefix: str = "") -> tuple[tuple[tuple[str, ...], str, Any], ...]:
    found: list[tuple[tuple[str, ...], str, Any]] = []
    for name, hint, _ in _fields(cls):
        inner = _record_type(hint)
        if inner is not None:
            found += _columns(inner, (*path, name), _prefixed(prefix, name))
        else:
            found.append(((*path, name), prefix + name, _plain(hint)))
    return tuple(found)


def _plain(hint: Any) -> Any:
    """The hint without ``| None``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not type(None))
    return hint


def _record_type(hint: Any) -> type | None:
    plain = _plain(hint)
    return plain if isinstance(plain, type) and dataclasses.is_dataclass(plain) else None


def _is_dict(hint: Any) -> bool:
    return typing.get_origin(_plain(hint)) is dict


def _polars_type(hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return pl.List(_polars_type(typing.get_args(hint)[0]))
    if origin is dict or origin is typing.Literal or hint is str:
        return pl.String
    return {bool: pl.Boolean, int: pl.Int64, float: pl.Float64}[hint]


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return encode(value)
    return [_encode(item) for item in value] if isinstance(value, tuple) else value


def _decode(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    plain = _plain(hint)
    record = _record_type(plain)
    if record is not None:
        return decode(record, value)
    origin = typing.get_origin(plain)
    if origin is tuple:
        item = typing.get_args(plain)[0]
        return tuple(_decode(item, each) for each in value)
    return float(value) if plain is float else value
