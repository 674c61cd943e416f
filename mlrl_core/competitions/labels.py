"""Which installed files hold the labels of built-in competitions, so that a sandbox can hide them."""

from __future__ import annotations

import os
import re
import site
import sys
from functools import cache
from pathlib import Path

from mlrl_core.competitions.builtin import BUILTIN
from mlrl_core.competitions.builtin.tables import MissingPackage

# Copies of the same tables go by these names in other packages (seaborn, vega_datasets, pydataset, nltk, ...).
_NAMES = re.compile(
    r"(?i)(diamonds|penguins|breast[_-]?cancer|wdbc|wisconsin|(opt)?digits|vader[_-]?lexicon|emoji_utf8_lexicon)"
    r"[\w.-]*\.(csv|tsv|txt|data|json|arff|parquet|feather|arrow|pkl|pickle|npz|npy|rda|rds|xls|xlsx|zip|h5|db)"
    r"(\.(gz|bz2|xz|zst|zip))?$"
)
_SKIPPED = frozenset(("__pycache__", "node_modules", "include"))


@cache
def label_files() -> list[Path]:
    """Files of this environment, and of the system's Python, that hold labels of a built-in competition: the source
    tables themselves and files that go by the same names in any installed package. Absolute, sorted."""
    found: set[Path] = set()
    for spec in BUILTIN.values():
        try:
            found.update(spec.label_files())
        except MissingPackage:
            continue  # that package is not installed: nothing to hide
    for root in _package_roots():
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in _SKIPPED]
            found.update(Path(folder, file) for file in files if _NAMES.fullmatch(file))
    return sorted(found | {path.resolve() for path in found})


def _package_roots() -> set[Path]:
    roots = {Path(path) for path in (*site.getsitepackages(), site.getusersitepackages(), *sys.path)}
    system = {*Path("/usr/lib").glob("python3*"), *Path("/usr/local/lib").glob("python3*")}
    return {
        root
        for root in roots | system
        if root.is_dir() and (root.name in ("site-packages", "dist-packages") or root in system)
    }
