"""Reading a CSV the way MLE-bench's reader does (grading rules section 3.1), without depending on its version.

The reader is half of the grading contract: whether ``" 1"`` is a number, ``NA`` is missing or a blank line is a row
decides scores. The rules here are those of pandas 3.1, checked against it by tests, with one difference: what makes
that reader raise (a ragged row, an open quote, bytes that are not UTF-8) is a ``ReadError`` with a reason.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mlrl_core.competitions.columns import Column, infer

BOM = b"\xef\xbb\xbf"
# Ends the text while parsing: when the last row is anything else, a quote was left open. Holds a character that
# no CSV cell can bring in unnoticed (it would still be compared as a whole row).
_SENTINEL = "\x01mlrl-end\x01"


class ReadError(Exception):
    """The file is no table. ``reason`` is from the fixed vocabulary, ``detail`` stays on the host."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class CsvTable:
    """Cells as text, by column; types are inferred per column when asked for."""

    header: list[str]
    columns: list[Sequence[str]]
    n_rows: int
    _cache: dict[str, Column] = field(default_factory=dict)

    def cells(self, name: str) -> Sequence[str]:
        """The raw cells of a column; a row that is too short has an empty cell."""
        return self.columns[self.header.index(name)]

    def column(self, name: str) -> Column:
        """The column with its inferred type."""
        if name not in self._cache:
            self._cache[name] = infer(self.cells(name))
        return self._cache[name]


def parse_csv(data: bytes, max_rows: int | None = None) -> CsvTable:
    """The table in ``data``; one without any row has no columns. Reading stops with a ReadError after ``max_rows``
    rows, so that a file of millions of empty rows costs no memory. Raises ReadError."""
    data = data.removeprefix(BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReadError("not_utf8", f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8") from None
    if '"' in text:
        return _table(_tokenise(text, max_rows))
    lines = _lines(text, max_rows)
    if len({line.count(",") for line in lines}) != 1:
        return _table([line.split(",") for line in lines])
    # Without quotes and with as many commas in every line, one split gives all cells: no list is made per row.
    cells = ",".join(lines).split(",")
    width = lines[0].count(",") + 1
    return CsvTable(_names(cells[:width]), [cells[width + c :: width] for c in range(width)], len(lines) - 1)


def _table(rows: list[list[str]]) -> CsvTable:
    if not rows:
        return CsvTable([], [], 0)
    header, *body = rows
    width = len(header)
    for number, row in enumerate(body, start=1):
        if len(row) > width:
            raise ReadError("ragged_row", f"row {number} has {len(row)} fields, the header has {width}")
        if len(row) < width:
            row += [""] * (width - len(row))
    columns: list[Sequence[str]] = list(zip(*body, strict=True)) if body else [()] * width
    return CsvTable(_names(header), columns, len(body))


def _lines(text: str, max_rows: int | None) -> list[str]:
    """The lines of a text without quotes, less the blank ones (a line of spaces is blank)."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line for line in text.split("\n") if line and not (line[0] in " \t" and not line.strip(" \t"))]
    if max_rows is not None and len(lines) > max_rows + 1:
        raise ReadError("wrong_row_count", f"more than {max_rows} rows")
    return lines


def _tokenise(text: str, max_rows: int | None) -> list[list[str]]:
    csv.field_size_limit(sys.maxsize)  # a process-wide setting of the csv module; its default of 128 KiB is too low
    lines = _Lines(text)
    rows: list[list[str]] = []
    complete = False
    for row in csv.reader(lines):
        if len(row) == 1:
            cell = row[0]
            if cell == _SENTINEL:
                complete = True
                break
            # A line of spaces is no row; the same spaces in quotes are.
            if not cell.strip(" \t") and cell and not lines.last.strip():
                continue
        if row:
            rows.append(row)
            if max_rows is not None and len(rows) > max_rows + 1:
                raise ReadError("wrong_row_count", f"more than {max_rows} rows")
    if not complete:
        raise ReadError("open_quote", "a quote is opened and never closed")
    return rows


class _Lines:
    """The lines of a text with their own line ends (LF, CRLF or CR), then the sentinel; remembers the last one."""

    def __init__(self, text: str) -> None:
        end = "" if not text or text[-1] in "\r\n" else "\n"
        self._lines = io.StringIO(text + end + _SENTINEL, newline="")
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.last = line
            yield line


def _names(header: list[str]) -> list[str]:
    """Column names: an empty one gets a name by position, the second of two equal ones a suffix."""
    names: dict[str, None] = {}
    for index, cell in enumerate(header):
        name = candidate = cell or f"Unnamed: {index}"
        count = 0
        while candidate in names:
            count += 1
            candidate = f"{name}.{count}"
        names[candidate] = None
    return list(names)
