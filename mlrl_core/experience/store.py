"""The experience store: append-only, one row per solution that has ended.

A row is renamed into ``experiences/wave=00012/<id>.parquet`` when its solution ends; a closed wave is compacted into
``experiences/wave=00012.parquet``. Where both exist (killed while compacting), the compacted file is the whole wave.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from mlrl_core.experience.codec import from_columns, schema, to_columns
from mlrl_core.experience.files import publish
from mlrl_core.experience.run_directory import RunDirectory, wave_of
from mlrl_core.records import Experience


class ExperienceStore:
    """Rows of one run. Several processes may append at the same time."""

    def __init__(self, run: RunDirectory) -> None:
        self._root = run.experiences

    def append(self, experience: Experience) -> Path:
        """Publish one row; a row that is already there stays as it is (rows never change). Returns its file."""
        solution_id = experience.solution.solution_id
        existing = self.find(solution_id)
        if existing is not None:
            return existing
        frame = pl.DataFrame([to_columns(experience)], schema=schema())
        return publish(self._row(solution_id), frame.write_parquet, durable=True)

    def find(self, solution_id: str) -> Path | None:
        """The file that holds the row of a solution, or None."""
        row = self._row(solution_id)
        if row.exists():
            return row
        shard = self.shard(wave_of(solution_id))
        if shard.exists():
            ids = pl.read_parquet(shard, columns=["solution_id"])["solution_id"]
            return shard if solution_id in set(ids) else None
        return None

    def ids(self, wave: int) -> list[str]:
        """Ids of the rows of a wave, ascending."""
        shard = self.shard(wave)
        if shard.exists():
            return sorted(pl.read_parquet(shard, columns=["solution_id"])["solution_id"])
        return sorted(path.stem for path in self._folder(wave).glob("[0-9]*.parquet"))

    def waves(self) -> list[int]:
        """Waves that have at least one row, ascending."""
        return sorted({int(path.stem.removeprefix("wave=")) for path in self._root.glob("wave=*")})

    def read(self, wave: int) -> list[Experience]:
        """The rows of a wave as records, in id order."""
        return [from_columns(row) for row in self.frame([wave]).iter_rows(named=True)]

    def get(self, solution_id: str) -> Experience:
        """The row of one solution. Raises KeyError where there is none."""
        rows = self.frame([wave_of(solution_id)]).filter(pl.col("solution_id") == solution_id)
        if rows.is_empty():
            raise KeyError(f"{solution_id} has no experience row")
        return from_columns(rows.row(0, named=True))

    def frame(self, waves: Iterable[int] | None = None, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Rows as a table, in id order: of the given waves, or of all. Columns that an older file lacks are null."""
        full = schema()
        wanted = list(full) if columns is None else list(columns)
        parts: list[pl.DataFrame] = []
        for wave in self.waves() if waves is None else waves:
            for path in self._files(wave):
                there = set(pl.read_parquet_schema(path))
                part = pl.read_parquet(path, columns=[c for c in wanted if c in there])
                lacking = [pl.lit(None, dtype=full[c]).alias(c) for c in wanted if c not in there]
                parts.append(part.with_columns(lacking).select(wanted))
        if not parts:
            return pl.DataFrame(schema={column: full[column] for column in wanted})
        return pl.concat(parts)

    def compact(self, wave: int) -> Path:
        """Merge the rows of a closed wave into one file. Safe to repeat, and to be killed anywhere."""
        shard = self.shard(wave)
        if not shard.exists():
            publish(shard, self.frame([wave]).write_parquet, durable=True)
        shutil.rmtree(self._folder(wave), ignore_errors=True)
        return shard

    def _files(self, wave: int) -> list[Path]:
        shard = self.shard(wave)
        return [shard] if shard.exists() else sorted(self._folder(wave).glob("[0-9]*.parquet"))

    def _folder(self, wave: int) -> Path:
        return self._root / f"wave={wave:05d}"

    def shard(self, wave: int) -> Path:
        """The file of a compacted wave."""
        return self._root / f"wave={wave:05d}.parquet"

    def _row(self, solution_id: str) -> Path:
        return self._folder(wave_of(solution_id)) / f"{solution_id}.parquet"
