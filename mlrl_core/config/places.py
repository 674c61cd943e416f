"""Where large things are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """``$MLRL_CACHE``, else ``mlrl`` in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    if named := os.environ.get("MLRL_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlrl"
