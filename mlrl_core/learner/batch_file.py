"""What one update consumes, as a parquet file: rows in, the same rows out, guarded by a digest of their content."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mlrl_core.errors import MlrlError
from mlrl_core.records import EXCLUDED_OUTCOMES, OUTCOMES, FinishReason, Outcome

Asked = Literal["solve", "improve", "mend"]


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One solution as the learner sees it. The ids are the sampler's own, never rebuilt from text.

    ``rollout_log_probs`` has one behaviour log-probability per response token, at the sampling temperature.
    ``reward`` is its own (charged for time where the configuration says so); ``duration_weight`` was computed over the
    whole batch; ``policy_version`` is the version at dispatch. ``inclusion`` is the probability that a solution of this
    duration was in the batch, ``available_s`` the time that it had until its cut, None where nothing limits it.
    ``asked``: to solve, to improve a graded solution, or to mend a failed one.
    ``next_id`` is the row in which its episode goes on: what that one earns is part of this one's return.
    """

    experience_id: str
    competition_id: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    rollout_log_probs: tuple[float, ...]
    reward: float
    duration_s: float
    duration_weight: float
    policy_version: int
    outcome: Outcome
    finish_reason: FinishReason
    inclusion: float = 1.0
    available_s: float | None = None
    asked: Asked = "solve"
    next_id: str | None = None


def write_batch(path: Path, rows: Sequence[BatchRow]) -> str:
    """Write ``rows`` to ``path`` (parquet, replaced atomically) and return their digest.

    Raises MlrlError for a batch that can't be trained on: no rows, a repeated experience, an excluded outcome, numbers
    that aren't finite, or log-probabilities that don't match the tokens.
    """
    import polars as pl

    check_rows(rows)
    schema: dict[str, Any] = {
        "prompt_ids": pl.List(pl.Int64),
        "response_ids": pl.List(pl.Int64),
        "rollout_log_probs": pl.List(pl.Float64),
        "reward": pl.Float64,
        "duration_s": pl.Float64,
        "duration_weight": pl.Float64,
        "policy_version": pl.Int64,
        "inclusion": pl.Float64,
        "available_s": pl.Float64,
        "next_id": pl.String,
    }
    frame = pl.DataFrame(
        {f.name: [_plain(getattr(row, f.name)) for row in rows] for f in fields(BatchRow)}, schema_overrides=schema
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        frame.write_parquet(partial)
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return batch_digest(rows)


def read_batch(path: Path, digest: str | None = None) -> list[BatchRow]:
    """The rows of ``path``, in their order.

    Raises MlrlError when the file can't be read, or when ``digest`` is given and the rows have another one.
    """
    import polars as pl

    try:
        frame = pl.read_parquet(path)
        rows = [_row(record) for record in frame.iter_rows(named=True)]
    except (OSError, pl.exceptions.PolarsError, TypeError) as error:
        raise MlrlError(f"{path}: can't be read as a batch ({str(error).splitlines()[0]})") from None
    if digest is not None and batch_digest(rows) != digest:
        raise MlrlError(f"{path}: its rows are not those of digest {digest[:12]}; was the file changed?")
    check_rows(rows)
    return rows


def batch_digest(rows: Sequence[BatchRow]) -> str:
    """SHA-256 of the rows' content: independent of how the file stores them."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(asdict(row), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def check_rows(rows: Sequence[BatchRow]) -> None:
    """Raise MlrlError, naming the row, unless the rows can be trained on."""
    if not rows:
        raise MlrlError("a batch needs at least one row")
    seen: set[str] = set()
    ids = {row.experience_id for row in rows}
    followed: set[str] = set()
    for row in rows:
        problem = _problem(row)
        if row.next_id is not None:
            if row.next_id not in ids:
                problem = f"its episode goes on in {row.next_id}, which is not in the batch"
            if row.next_id <= row.experience_id or row.next_id in followed:
                problem = f"its episode can't go on in {row.next_id}"
            followed.add(row.next_id)
        if row.experience_id in seen:
            problem = "occurs twice in the batch"
        if problem:
            raise MlrlError(f"batch row {row.experience_id}: {problem}")
        seen.add(row.experience_id)


def _problem(row: BatchRow) -> str | None:
    numbers = (row.reward, row.duration_s, row.duration_weight, row.inclusion, *row.rollout_log_probs)
    if not all(math.isfinite(x) for x in numbers):
        return "a number is not finite"
    if not row.prompt_ids:
        return "the prompt is empty"
    if len(row.response_ids) != len(row.rollout_log_probs):
        return f"{len(row.response_ids)} response tokens but {len(row.rollout_log_probs)} log-probabilities"
    if min((*row.prompt_ids, *row.response_ids)) < 0:
        return "a token id is negative"
    if row.duration_s < 0 or row.duration_weight < 0:
        return "duration and weight can't be negative"
    if row.outcome not in OUTCOMES or row.outcome in EXCLUDED_OUTCOMES:
        return f"outcome '{row.outcome}' never enters a batch"
    if row.policy_version < 0:
        return "the policy version is negative"
    return None


def _row(record: dict[str, Any]) -> BatchRow:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
    return BatchRow(**values)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
