"""A preview of public data for prompts: file tree, row counts, columns with types and ranges, in a token budget.

Reads a bounded head of every table, so a file of any size costs the same; the row count of a large one is estimated
and marked so. The text depends on the files only (stable order, no random sample).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.competitions.columns import Column
from mlrl_core.competitions.reader import CsvTable, ReadError, parse_csv

HEAD_BYTES = 256 * 1024
EXACT_COUNT_BYTES = 50 * 1024**2  # larger tables: the row count is estimated from the head
MAX_TABLES = 12
FILES_PER_FOLDER = 8
FEW_FILES_PER_FOLDER = 4  # in a folder of more than 30
MAX_DEPTH = 3
CELL_CHARS = 24
HIDDEN_FILES = frozenset(("description.md",))  # the prompt has it already
CUT = "\n[preview cut]\n"


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    rows: str
    head: CsvTable
    partial: bool


def data_preview(public_dir: Path, max_tokens: int = 600, count_tokens: Callable[[str], int] | None = None) -> str:
    """The preview of everything under ``public_dir``, at most ``max_tokens`` by ``count_tokens`` (default: four
    characters a token). The fullest of four levels of detail that fits is taken; the barest is cut hard."""
    count = count_tokens or (lambda text: math.ceil(len(text) / 4))
    tree = "".join(f"{line}\n" for line in _tree(public_dir))
    tables = list(_tables(public_dir))
    records = [text for path in _files(public_dir, (".json", ".jsonl")) if (text := _json_preview(path, public_dir))]
    for describe in (_with_ranges, _with_types, _with_names):
        text = tree + "".join("\n" + part for part in [*map(describe, tables), *records])
        if count(text) <= max_tokens:
            return text
    text = tree + "".join(f"\n{table.name}: {table.rows} x {len(table.head.header)} columns\n" for table in tables)
    return text if count(text) <= max_tokens else _cut(text, max_tokens, count)


def _cut(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The longest prefix in whole lines that fits with the mark of the cut; the mark alone where not even that."""
    lines = text.splitlines(keepends=True)
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if count("".join(lines[:middle]) + CUT) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    cut = "".join(lines[:low]) + CUT
    return cut if count(cut) <= max_tokens else ""


def _tree(folder: Path, depth: int = 0) -> Iterator[str]:
    entries = sorted((e for e in os.scandir(folder) if e.name not in HIDDEN_FILES), key=lambda e: e.name)
    files = [e for e in entries if e.is_file(follow_symlinks=False)]
    folders = [e for e in entries if e.is_dir(follow_symlinks=False)]
    shown = FILES_PER_FOLDER if len(files) <= 30 else FEW_FILES_PER_FOLDER
    indent = "  " * depth
    for entry in files[:shown]:
        yield f"{indent}{entry.name} ({_size(entry.stat().st_size)})"
    if len(files) > shown:
        yield f"{indent}... {len(files) - shown} more files"
    for entry in folders[:shown]:
        yield f"{indent}{entry.name}/"
        if depth + 1 < MAX_DEPTH:
            yield from _tree(Path(entry.path), depth + 1)
    if len(folders) > shown:
        yield f"{indent}... {len(folders) - shown} more folders"


def _size(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size = size / 1000  # type: ignore[assignment]
    return f"{size:.1f} GB"


def _files(public_dir: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Regular files with one of the suffixes, top folders first; bounded."""
    found: list[Path] = []
    level = [public_dir]
    for _ in range(MAX_DEPTH):
        deeper: list[Path] = []
        for folder in level:
            for entry in sorted(os.scandir(folder), key=lambda e: e.name):
                if entry.is_dir(follow_symlinks=False):
                    deeper.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False) and Path(entry.name).suffix.lower() in suffixes:
                    found.append(Path(entry.path))
                    if len(found) == MAX_TABLES:
                        return found
        level = deeper[:FILES_PER_FOLDER]
    return found


def _tables(public_dir: Path) -> Iterator[_Table]:
    for path in _files(public_dir, (".csv",)):
        size = path.stat().st_size
        with path.open("rb") as file:
            head_bytes = file.read(HEAD_BYTES)
        partial = len(head_bytes) < size
        head = _parse_head(head_bytes, partial)
        if head is None:
            continue
        rows = _row_count(path, size, head, head_bytes) if partial else f"{head.n_rows} rows"
        yield _Table(str(path.relative_to(public_dir)), rows, head, partial)


def _parse_head(data: bytes, partial: bool) -> CsvTable | None:
    """The head as a table; its last, incomplete row is dropped. None when it is no table."""
    for _ in range(20):  # a cut inside a quoted cell takes its first lines with it
        if partial:
            data = data[: data.rfind(b"\n")] if b"\n" in data else b""
        try:
            return parse_csv(data) if data else None
        except ReadError as error:
            if not partial or error.reason != "open_quote":
                return None
    return None


def _row_count(path: Path, size: int, head: CsvTable, head_bytes: bytes) -> str:
    if size > EXACT_COUNT_BYTES:
        estimate = head.n_rows * size / len(head_bytes)
        digits = max(0, len(str(int(estimate))) - 2)
        return f"about {int(round(estimate, -digits))} rows (estimated)"
    lines, quoted, last = 0, False, b""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            # A line end inside quotes is part of a cell.
            for number, piece in enumerate(block.split(b'"')):
                quoted = quoted != (number > 0)
                lines += 0 if quoted else piece.count(b"\n")
            last = block[-1:]
    rows = lines - 1 if last == b"\n" else lines
    return f"{rows} rows"


def _with_ranges(table: _Table) -> str:
    of = f", columns from the first {table.head.n_rows} rows" if table.partial else ""
    lines = [f"{table.name}: {table.rows} x {len(table.head.header)} columns{of}"]
    lines += [f"- {name}: {_describe(table.head.column(name))}" for name in table.head.header]
    return "\n".join(lines) + "\n"


def _with_types(table: _Table) -> str:
    names = (f"{name} ({table.head.column(name).kind})" for name in table.head.header)
    return f"{table.name}: {table.rows} x {len(table.head.header)} columns\n{', '.join(names)}\n"


def _with_names(table: _Table) -> str:
    names = table.head.header
    shown = ", ".join(names[:15]) + (f", ... {len(names) - 15} more" if len(names) > 15 else "")
    return f"{table.name}: {table.rows} x {len(names)} columns\n{shown}\n"


def _describe(column: Column) -> str:
    values = column.values
    if column.kind == "text":
        present = [value for value in values.tolist() if value is not None]
        distinct = list(dict.fromkeys(present))
        examples = ", ".join(repr(_short(value)) for value in sorted(distinct[:50])[:3])
        text = f"text, {len(distinct)} distinct, e.g. {examples}"
        share = 1 - len(present) / len(values) if len(values) else 0.0
    elif len(values) == 0:
        return "empty"
    else:
        numbers = column.floats()
        known = numbers[numbers == numbers]
        share = 1 - len(known) / len(numbers)
        text = column.kind
        if len(known) and column.kind != "bool":
            text += f", {known.min():g} to {known.max():g}"
    return text + (f", {share:.0%} missing" if share else "")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 3] + "..."


def _json_preview(path: Path, public_dir: Path) -> str:
    """Keys and types of the first record, from a bounded head."""
    with path.open("rb") as file:
        text = file.read(HEAD_BYTES).decode("utf-8", errors="ignore").lstrip("\ufeff \t\r\n[")
    try:
        record, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return ""
    if not isinstance(record, dict):
        return ""
    keys = ", ".join(f"{key} ({type(value).__name__})" for key, value in list(record.items())[:40])
    return f"{path.relative_to(public_dir)}: records with {keys}\n"
