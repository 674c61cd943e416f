"""Fields of public data that give the label away: a cleaned copy of the public folder without them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mlrl_core.errors import MlrlError

# They may hold the field, and nothing in them is missing from the extracted files beside them.
ARCHIVES = frozenset((".zip", ".gz", ".tar", ".tgz", ".bz2", ".xz", ".7z", ".rar"))


def without_fields(public_dir: Path, fields: tuple[str, ...], cache_dir: Path) -> Path:
    """A copy of ``public_dir`` in ``cache_dir`` whose tables and JSON records lack ``fields``; made once.

    Archives are left out. Raises MlrlError when the copy can't be written or a file can't be read.
    """
    final = cache_dir / f"{public_dir.parent.parent.name}-{_fingerprint(public_dir, fields)}"
    if final.is_dir():
        return final
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir) as scratch:
            fresh = Path(scratch, "public")
            for folder, names, files in os.walk(public_dir):
                target = fresh / Path(folder).relative_to(public_dir)
                target.mkdir(parents=True, exist_ok=True)
                target.chmod(0o755)
                names.sort()
                for name in sorted(files):
                    _copy(Path(folder, name), target / name, fields)
            try:
                fresh.rename(final)
            except OSError:
                if not final.is_dir():  # else another process was first
                    raise
    except OSError as error:
        raise MlrlError(f"can't write the cleaned copy {final} ({error.strerror}): set MLRL_DATA to a folder") from None
    return final


def _copy(source: Path, target: Path, fields: tuple[str, ...]) -> None:
    suffix = source.suffix.lower()
    if suffix in ARCHIVES or source.is_symlink():
        return
    if suffix in (".csv", ".json", ".jsonl"):
        cleaner = {".csv": _clean_csv, ".json": _clean_json, ".jsonl": _clean_jsonl}[suffix]
        try:
            target.write_text(cleaner(source.read_text(encoding="utf-8"), fields), encoding="utf-8")
        except ValueError as error:
            raise MlrlError(f"{source}: can't be read to drop {', '.join(fields)} ({error})") from None
    else:
        shutil.copyfile(source, target)
    target.chmod(0o644)


def _clean_csv(text: str, fields: tuple[str, ...]) -> str:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    keep = [c for c, name in enumerate(rows[0]) if name not in fields] if rows else []
    if not rows or len(keep) == len(rows[0]):
        return text
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([row[c] for c in keep if c < len(row)] for row in rows)
    return out.getvalue()


def _clean_json(text: str, fields: tuple[str, ...]) -> str:
    return json.dumps(_without(json.loads(text), fields), ensure_ascii=False, indent=2)


def _clean_jsonl(text: str, fields: tuple[str, ...]) -> str:
    lines = (json.dumps(_without(json.loads(line), fields), ensure_ascii=False) for line in text.splitlines() if line)
    return "".join(line + "\n" for line in lines)


def _without(value: Any, fields: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _without(entry, fields) for key, entry in value.items() if key not in fields}
    return [_without(entry, fields) for entry in value] if isinstance(value, list) else value


def _fingerprint(public_dir: Path, fields: tuple[str, ...]) -> str:
    parts = [str(public_dir), *fields]
    for path in sorted(public_dir.rglob("*")):
        info = path.lstat()
        parts.append(f"{path.relative_to(public_dir)} {info.st_size} {info.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
