"""Runs inside the new image's root: takes out what a program must not find and makes imports quick.

Used by both ways of building (``mlrl sandbox build`` and ``deployments/sandbox/Dockerfile``), so that their images
are alike; its arguments are the packages that were asked for. Standard library only; it runs under the image's own
Python.
"""

from __future__ import annotations

import importlib.metadata as metadata
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = Path("/usr/local/lib/python3.11/dist-packages")
LIST = Path("/usr/share/mlrl/packages.json")
MARK = Path("/mlrl-image-root")  # made by the builder
# Data sets with the labels of built-in competitions, wherever a package brings them.
BUNDLED_DATA = (
    "sklearn/datasets/data",
    "sklearn/datasets/images",
    "sklearn/datasets/descr",
    "sklearn/datasets/tests/data",
    "statsmodels/datasets",
    "plotnine/data",
    "seaborn/data",
)
# Modules whose data is gone, but which others import.
KEEP_MODULES = (".py",)
CLUTTER = (
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/info",
    "/var/cache/apt",
    "/var/lib/apt/lists",
    "/var/log",
    "/root/.cache",
    "/usr/local/bin",
)
COMPILED = ("/usr/lib/python3", "/usr/lib/python3.11", str(PACKAGES))


def remove_data() -> list[str]:
    """Delete bundled data files (modules stay); returns what was deleted."""
    gone = []
    for name in BUNDLED_DATA:
        folder = PACKAGES / name
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file() and path.suffix not in KEEP_MODULES:
                path.unlink()
                gone.append(str(path))
    return gone


def empty_clutter() -> None:
    """Empty folders that only a person would read. They stay, so that paths go on to exist."""
    for name in CLUTTER:
        folder = Path(name)
        if folder.is_dir():
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def clear_privileges() -> int:
    """Take the set-user and set-group bits from every file; returns how many had one."""
    count = 0
    for folder, _, files in os.walk("/"):
        if folder == "/":
            _[:] = [name for name in _ if name not in ("proc", "sys", "dev")]
        for name in files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                os.chmod(path, stat.S_IMODE(mode) & 0o777)
                count += 1
    return count


def compile_all() -> None:
    """Bytecode that stays valid whatever the time stamps: an image's layers may clamp them."""
    shutil.rmtree("/usr/lib/python3.11/test", ignore_errors=True)
    for tree in COMPILED:
        for folder, names, _ in os.walk(tree):
            if "__pycache__" in names:
                shutil.rmtree(os.path.join(folder, "__pycache__"))
    # A few modules are templates for other versions and don't compile: they never did.
    subprocess.run(
        [sys.executable, "-m", "compileall", "-f", "-q", "--invalidation-mode", "unchecked-hash", *COMPILED],
        stdout=subprocess.DEVNULL,
        check=False,
    )


def try_imports(packages: list[str]) -> list[str]:
    """Import each package in an interpreter of its own; returns one line for each that fails.

    An index may offer builds that don't fit each other, such as torchvision for GPUs beside torch without.
    """
    failed = []
    with tempfile.TemporaryDirectory() as home:
        for package in packages:
            for module in _modules(package):
                done = subprocess.run(
                    [sys.executable, "-I", "-B", "-c", f"import {module}"],
                    capture_output=True,
                    text=True,
                    env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home},
                )
                if done.returncode != 0:
                    lines = done.stderr.strip().splitlines() or [f"code {done.returncode}"]
                    failed.append(f"import {module}: {lines[-1]}")
    return failed


def _modules(package: str) -> list[str]:
    """What can be imported of an installed package: its folders with an ``__init__.py``, and single modules."""
    files = metadata.distribution(package).files or ()
    tops = {file.parts[0] for file in files if len(file.parts) == 2 and file.name == "__init__.py"}
    tops |= {file.stem for file in files if len(file.parts) == 1 and file.suffix == ".py"}
    return sorted(name for name in tops if name.isidentifier() and not name.startswith("_"))


def write_list() -> None:
    """What prompts may say is installed: name -> version, from the packages' own records."""
    found = {
        distribution.metadata["Name"]: distribution.version
        for distribution in metadata.distributions(path=[str(PACKAGES)])
    }
    LIST.parent.mkdir(parents=True, exist_ok=True)
    LIST.write_text(json.dumps({"python": sys.version.split()[0], **dict(sorted(found.items()))}, indent=1) + "\n")


def main() -> None:
    if not MARK.exists():
        sys.exit(f"{MARK} is missing: this script empties folders and runs only in the root of a new image")
    remove_data()
    empty_clutter()
    clear_privileges()
    compile_all()
    if failed := try_imports(sys.argv[1:]):
        sys.exit("; ".join(failed) + ": name an index whose builds fit each other (--pip-arg=--index-url=...)")
    write_list()
    for name in ("/in", "/job", "/out"):
        Path(name).mkdir(exist_ok=True)
    names = Path("/etc/resolv.conf")
    if not os.path.ismount(names):  # `docker build` mounts its own there, which is no part of the image
        names.unlink(missing_ok=True)
    MARK.unlink()


if __name__ == "__main__":
    main()
