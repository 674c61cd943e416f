"""The real tables behind the built-in competitions, read from files that installed packages carry.

Nothing is downloaded and the packages themselves are not imported: only their data files are opened.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mlrl_core.competitions.words import MISSING
from mlrl_core.errors import MlrlError

Row = list[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A small text table: column names and rows of cells, in the order of the file."""

    header: list[str]
    rows: list[Row]


class MissingPackage(MlrlError):
    """The package that carries a competition's table is not installed."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One data file of an installed package; ``distribution`` is the name that pip knows it by."""

    package: str
    path: str
    distribution: str
    read: Callable[[bytes], Table]

    def locate(self) -> Path:
        """The file on this machine. Raises MlrlError when the package or the file is not there."""
        found = find_in_package(self.package, self.path)
        if found is None:
            raise MissingPackage(
                f"{self.package}/{self.path} is not installed: run 'pip install {self.distribution}' here"
            )
        return found

    def label_files(self) -> list[Path]:
        """The file itself: it holds every label."""
        return [self.locate()]

    def digest(self) -> str:
        """SHA-256 of the file: another version of the package may carry another table."""
        return hashlib.sha256(self.locate().read_bytes()).hexdigest()

    def table(self) -> Table:
        """The table with exact duplicates of a row dropped (a copy in train would give away its twin in test)."""
        table = self.read(self.locate().read_bytes())
        return Table(table.header, [list(row) for row in dict.fromkeys(map(tuple, table.rows))])


def find_in_package(package: str, path: str) -> Path | None:
    """``path`` inside an importable top-level package, without importing it; None when it is not there."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(folder, path)).is_file():
            return found
    return None


def _csv_rows(data: bytes) -> list[Row]:
    return [row for row in csv.reader(io.StringIO(data.decode("utf-8"), newline="")) if row]


def _with_header(data: bytes) -> Table:
    header, *rows = _csv_rows(data)
    return Table(header, rows)


def _breast_cancer(data: bytes) -> Table:
    # The first line holds sizes and class names, the columns are documented in the data set's description:
    # three statistics of ten measures, then the class (1 = benign).
    measures = ["radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity"]
    measures += ["concave_points", "symmetry", "fractal_dimension"]
    header = [f"mean_{m}" for m in measures] + [f"{m}_error" for m in measures] + [f"worst_{m}" for m in measures]
    _, *rows = _csv_rows(data)
    return Table([*header, "benign"], rows)


def _valence(data: bytes) -> Table:
    # Tab separated: token, mean rating, its deviation, the ten ratings. A token that comes twice keeps its first
    # rating; tokens that a CSV reader takes for a missing value are left out.
    rows: dict[str, Row] = {}
    for line in data.decode("utf-8").splitlines():
        token, mean, *_ = line.split("\t")
        if token not in MISSING:
            rows.setdefault(token, [token, mean])
    return Table(["token", "valence"], list(rows.values()))


def _digits(data: bytes) -> Table:
    # 64 intensities (0 to 16) of an 8 x 8 picture, row by row, then the digit; all written as floats.
    rows = [[str(int(float(cell))) for cell in row] for row in _csv_rows(gzip.decompress(data))]
    return Table([f"pixel_{r}_{c}" for r in range(8) for c in range(8)] + ["digit"], rows)


DIAMONDS = SourceFile("plotnine", "data/diamonds.csv", "plotnine", _with_header)
PENGUINS = SourceFile("plotnine", "data/penguins.csv", "plotnine", _with_header)
BREAST_CANCER = SourceFile("sklearn", "datasets/data/breast_cancer.csv", "scikit-learn", _breast_cancer)
DIGITS = SourceFile("sklearn", "datasets/data/digits.csv.gz", "scikit-learn", _digits)
VALENCE = SourceFile("vaderSentiment", "vader_lexicon.txt", "vaderSentiment", _valence)
