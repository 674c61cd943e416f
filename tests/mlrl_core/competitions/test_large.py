"""What large files cost in memory; what they cost in time is measured by ``tests.benchmarks.large_files``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mlrl_core.competitions.large import GRADE, PREVIEW, measured, write_submission, write_table


def test_400_000_rows_are_graded_in_one_gigabyte(tmp_path: Path) -> None:
    write_submission(tmp_path)
    raw, _, peak_mb = measured(GRADE, tmp_path)
    assert float(raw) == 0.75
    assert peak_mb < 1024


def test_a_large_table_is_estimated_and_marked(tmp_path: Path) -> None:
    rows = write_table(tmp_path)
    preview, _, peak_mb = measured(PREVIEW, tmp_path)
    (tmp_path / "large.csv").unlink()  # pytest keeps its folders for a while
    assert peak_mb < 200
    (line,) = [line for line in preview.splitlines() if line.startswith("large.csv: ")]
    assert "(estimated)" in line
    assert int(line.split()[2]) == pytest.approx(rows, rel=0.2)
