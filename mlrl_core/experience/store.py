"""The experience store: append-only, one row per solution that has ended.

A row is renamed into ``experiences/wave=00012/<id>.parquet`` when its solution ends; a closed wave is compacted into
``experiences/wave=00012.parquet``. Where both exist (killed while compacting), the compacted file is the whole wave.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from mlrl_core.errors import MlrlError
from mlrl_core.experience.codec import from_columns, schema, to_columns
from mlrl_core.experience.cuts import read_cut
from mlrl_core.experience.files import publish
from mlrl_core.experience.run_directory import RunDirectory, wave_of
from mlrl_core.records import Experience


class ExperienceStore:
    """Rows of one run. Several processes may append at the same time."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
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
            parts += self._read(wave, wanted)
        if not parts:
            return pl.DataFrame(schema={column: full[column] for column in wanted})
        return pl.concat(parts)

    def steps(self) -> list[int]:
        """Steps whose batch has been cut, ascending. Where cuts weren't recorded yet: one step per closed wave."""
        cuts = sorted(int(path.name.split(".")[0]) for path in self._run.cut(0).parent.glob("*.cut.json"))
        made = [step for step in cuts if (cut := read_cut(self._run, step)) is not None and cut.admitted is not None]
        first = min(cuts, default=None)
        return [w for w in self.waves() if self.shard(w).exists() and (first is None or w < first)] + made

    def step_frame(self, step: int, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows that left flight at a step, in id order: those of its batch, and those of which nothing is used."""
        cut = read_cut(self._run, step)
        if cut is None:
            return self.frame([step], columns)
        waves = sorted({wave_of(each) for each in cut.closed})
        wanted = list(columns) if columns is not None else list(schema())
        with_id = wanted if "solution_id" in wanted else [*wanted, "solution_id"]
        rows = self.frame(waves, with_id)
        return rows.filter(pl.col("solution_id").is_in(list(cut.closed))).select(wanted)

    def waves_closed_at(self, step: int) -> list[int]:
        """Waves that this step has used and that have ended: those whose file won't change."""
        cut = read_cut(self._run, step)
        waves = [step] if cut is None else sorted({wave_of(each) for each in cut.closed})
        return [wave for wave in waves if self.shard(wave).exists()]

    def compact(self, wave: int) -> Path:
        """Merge the rows of a closed wave into one file. Safe to repeat, and to be killed anywhere."""
        shard = self.shard(wave)
        if not shard.exists():
            publish(shard, self.frame([wave]).write_parquet, durable=True)
        shutil.rmtree(self._folder(wave), ignore_errors=True)
        return shard

    def _read(self, wave: int, wanted: Sequence[str]) -> list[pl.DataFrame]:
        """A wave may be compacted meanwhile: its single rows then vanish, and its shard is the whole of it."""
        shard = self.shard(wave)
        while not shard.exists():
            try:
                parts = [_read_file(path, wanted) for path in sorted(self._folder(wave).glob("[0-9]*.parquet"))]
            except FileNotFoundError:
                if not shard.exists():
                    raise
                continue
            if not shard.exists():
                return parts
        return [_read_file(shard, wanted)]

    def _folder(self, wave: int) -> Path:
        return self._root / f"wave={wave:05d}"

    def shard(self, wave: int) -> Path:
        """The file of a compacted wave."""
        return self._root / f"wave={wave:05d}.parquet"

    def _row(self, solution_id: str) -> Path:
        return self._folder(wave_of(solution_id)) / f"{solution_id}.parquet"


def _read_file(path: Path, wanted: Sequence[str]) -> pl.DataFrame:
    try:
        there = set(pl.read_parquet_schema(path))
        part = pl.read_parquet(path, columns=[column for column in wanted if column in there])
    except pl.exceptions.PolarsError as error:
        raise MlrlError(f"{path} is damaged ({str(error).splitlines()[0]}): restore it from a copy") from None
    lacking = [pl.lit(None, dtype=schema()[column]).alias(column) for column in wanted if column not in there]
    return part.with_columns(lacking).select(list(wanted))
