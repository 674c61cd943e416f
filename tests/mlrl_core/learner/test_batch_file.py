"""Batches round-trip exactly, and what can't be trained on is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow, batch_digest, read_batch, write_batch

MakeRows = Callable[..., list[BatchRow]]


def test_rows_round_trip_exactly(make_rows: MakeRows, tmp_path: Path) -> None:
    rows = make_rows([3, 0, 5], prompts=2)
    digest = write_batch(tmp_path / "batches" / "00001.parquet", rows)
    assert read_batch(tmp_path / "batches" / "00001.parquet", digest) == rows
    assert digest == batch_digest(rows)
    assert [p.name for p in (tmp_path / "batches").iterdir()] == ["00001.parquet"]


def test_a_changed_file_is_refused(make_rows: MakeRows, tmp_path: Path) -> None:
    rows = make_rows([3, 4])
    digest = write_batch(tmp_path / "b.parquet", rows)
    write_batch(tmp_path / "b.parquet", [replace(rows[0], reward=rows[0].reward + 1e-9), rows[1]])
    with pytest.raises(MlrlError, match="was the file changed"):
        read_batch(tmp_path / "b.parquet", digest)
    (tmp_path / "b.parquet").write_bytes(b"nonsense")
    with pytest.raises(MlrlError, match="can't be read as a batch"):
        read_batch(tmp_path / "b.parquet")
    with pytest.raises(MlrlError, match="can't be read as a batch"):
        read_batch(tmp_path / "absent.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": math.nan}, "not finite"),
        ({"rollout_log_probs": (-1.0, -math.inf, 0.0)}, "not finite"),
        ({"rollout_log_probs": (-1.0,)}, "3 response tokens but 1 log-prob"),
        ({"prompt_ids": ()}, "the prompt is empty"),
        ({"response_ids": (1, -1, 2)}, "negative"),
        ({"duration_weight": -1.0}, "can't be negative"),
        ({"outcome": "infra_error"}, "never enters a batch"),
        ({"outcome": "cancelled"}, "never enters a batch"),
        ({"policy_version": -1}, "negative"),
    ],
)
def test_rows_that_cannot_be_trained_on_are_named(
    make_rows: MakeRows, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    rows = make_rows([3, 3])
    with pytest.raises(MlrlError, match=f"0-1.*{message}"):
        write_batch(tmp_path / "b.parquet", [rows[0], replace(rows[1], **change)])  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_no_rows_and_a_row_twice_are_refused(make_rows: MakeRows, tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="at least one row"):
        write_batch(tmp_path / "b.parquet", [])
    with pytest.raises(MlrlError, match="occurs twice"):
        write_batch(tmp_path / "b.parquet", make_rows([3]) * 2)
