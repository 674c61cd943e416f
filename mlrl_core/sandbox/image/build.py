"""Builds the sandbox image without a registry: debootstrap, wheels, ``finish.py``, an archive, the engine's load."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Literal

from mlrl_core.cache import cache_dir
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox.image.archive import write_archive

Flavour = Literal["cpu", "full"]
SUITE = "bookworm"
_PACKAGES_IN_ROOT = "usr/local/lib/python3.11/dist-packages"
# Every wheel that the suite's C library (2.36) can load; pip takes a named platform literally, older ones left out.
_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)), "manylinux2014_x86_64")
LABEL_PACKAGES = "mlrl.packages"


def image_cache() -> Path:
    """Where base systems, archives and a test's engine are kept; made when missing."""
    folder = cache_dir() / "sandbox"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def image_tag(flavour: Flavour) -> str:
    return f"mlrl-sandbox-{flavour}:latest"


def package_list(flavour: Flavour) -> tuple[list[str], list[str]]:
    """(system packages, Python packages) of a flavour; ``full`` is ``cpu`` and more."""
    lists = json.loads(resources.files("mlrl_core.sandbox.image").joinpath("packages.json").read_text())
    return lists["system"], lists["cpu"] + (lists["full"] if flavour == "full" else [])


def archive_path(flavour: Flavour) -> Path:
    """Where the archive of the present package list and recipe is or would be."""
    recipe = json.dumps(package_list(flavour)).encode()
    recipe += resources.files("mlrl_core.sandbox.image").joinpath("finish.py").read_bytes()
    return image_cache() / f"{flavour}-{hashlib.sha256(recipe).hexdigest()[:12]}.tar"


def build_archive(flavour: Flavour, say: Callable[[str], None], pip_args: list[str]) -> Path:
    """The image archive, from the cache where it is there. Needs root and debootstrap.

    Raises MlrlError when something is missing on this machine, InfraError when a step fails.
    """
    archive = archive_path(flavour)
    if archive.exists():
        say(f"image archive {archive} is there already")
        return archive
    if os.geteuid() != 0:
        raise MlrlError("building the image without a registry needs root: use deployments/sandbox/Dockerfile instead")
    if shutil.which("debootstrap") is None:
        raise MlrlError("debootstrap is not installed: install it, or use deployments/sandbox/Dockerfile")
    system, python = package_list(flavour)
    root = image_cache() / f"root-{flavour}-{os.getpid()}"
    try:
        _base_system(root, system, say)
        say(f"wheels: {' '.join(python)}")
        target = root / _PACKAGES_IN_ROOT
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), "--no-compile"]
        platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
        _step([*pip, "--only-binary", ":all:", "--python-version", "3.11", *platforms, *pip_args, *python], 3600)
        say("cleaning and compiling")
        script = root / "tmp" / "finish.py"
        script.write_text(resources.files("mlrl_core.sandbox.image").joinpath("finish.py").read_text())
        (root / "mlrl-image-root").touch()
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        _step(["chroot", str(root), "python3", "-I", "/tmp/finish.py", *python], 1800, environment)
        script.unlink()
        shutil.rmtree(root / "dev")
        (root / "dev").mkdir()
        packages = (root / "usr/share/mlrl/packages.json").read_text()
        say("packing")
        labels = {LABEL_PACKAGES: json.dumps(json.loads(packages)), "mlrl.flavour": flavour}
        image_id = write_archive(root, archive, image_tag(flavour), labels)
        for old in archive.parent.glob(f"{flavour}-*.tar"):
            if old != archive:
                old.unlink()
        say(f"built {image_tag(flavour)} ({image_id[:19]}, {archive.stat().st_size >> 20} MB)")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return archive


def _base_system(root: Path, system: list[str], say: Callable[[str], None]) -> None:
    """A minimal Debian at ``root``, from the cache where it was made before."""
    key = hashlib.sha256(" ".join([SUITE, *system]).encode()).hexdigest()[:12]
    cached = image_cache() / f"base-{key}.tar"
    root.mkdir(parents=True)
    if not cached.exists():
        say(f"debootstrap {SUITE} (a minute or two)")
        _step(["debootstrap", "--variant=minbase", f"--include={','.join(system)}", SUITE, str(root)], 1800)
        partial = cached.with_suffix(".partial")
        _step(["tar", "--numeric-owner", "-C", str(root), "-cf", str(partial), "."], 600)
        partial.replace(cached)
        return
    say("base system from the cache")
    _step(["tar", "--numeric-owner", "-C", str(root), "-xf", str(cached)], 600)


def _step(command: list[str], timeout_s: float, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{command[0]} did not end within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
        raise InfraError(f"{command[0]} failed ({done.returncode}): {lines[-1]}")
