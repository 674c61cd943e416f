"""Large things that are made once and kept between runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

_MARK = "DONE"


def cache_dir() -> Path:
    """Where large things are kept between runs: ``$MLRL_CACHE``, else the user's cache folder."""
    root = os.environ.get("MLRL_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mlrl"
    )
    return Path(root)


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """``target``, made by ``make(folder)`` unless it is there already.

    It appears whole or not at all; of two processes that make it at once the first one's stays.
    """
    if (target / _MARK).exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=target.parent))
    try:
        make(partial)
        (partial / _MARK).touch()
        try:
            os.rename(partial, target)
        except OSError:
            if not (target / _MARK).exists():  # else another process was first, and made the same
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
