"""Versions of the policy on disk, published exactly once per batch (learner.md 8).

``<run>/versions/00007/`` holds ``adapter/`` (for peft and vLLM), ``state/`` (to train on), ``metrics.json``,
``manifest.json`` and ``DONE``. A version is prepared under a hidden name and becomes real by one rename: that is the
commit. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from mlrl_core.errors import MlrlError

CANARY_TEMPERATURE = 1.0  # whatever the run samples at
KEEP_STATES = 3  # newest versions that keep their state ...
KEEP_EVERY = 10  # ... beside every tenth


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a version is and where it came from. Version 0 has no parent and no batch."""

    version: int
    parent: int | None
    batch_id: str | None
    batch_digest: str | None
    config_digest: str
    adapter_sha256: str
    unchanged: bool  # the policy is bit-identical to its parent's: rate 0, warm-up of the critic, or equal rewards
    world_size: int
    created_at: float  # epoch seconds
    libraries: dict[str, str]
    canary_ids: list[int]  # fixed tokens ...
    canary_log_probs: list[float]  # ... and what the policy says of all but the first, at ...
    canary_temperature: float | None = None  # ... this temperature; None: the sampling temperature (older runs)


class VersionStore:
    """The versions of one run. One process writes (it holds the learner's lock); anybody may read."""

    def __init__(self, run_dir: Path) -> None:
        self.root = Path(run_dir) / "versions"

    def path(self, version: int) -> Path:
        return self.root / f"{version:05d}"

    def partial(self, version: int) -> Path:
        """Where a version is prepared."""
        return self.root / f".partial-{version:05d}"

    def recover(self) -> Manifest | None:
        """Remove what a killed writer left and return the newest version (None when there is none).

        Raises MlrlError when the versions are not an unbroken chain: that is damage, not something to skip.
        """
        for left in self.root.glob(".partial-*"):
            shutil.rmtree(left)
        return self.newest()

    def newest(self) -> Manifest | None:
        """The newest version; None when there is none."""
        chain = self.chain()
        return chain[-1] if chain else None

    def chain(self) -> list[Manifest]:
        """All manifests, from version 0 to the newest. Raises MlrlError when the chain is broken."""
        folders = sorted(p for p in self.root.glob("[0-9]*") if p.is_dir())
        manifests = [_read_manifest(folder) for folder in folders]
        for number, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
            if manifest.version != number or manifest.parent != (number - 1 if number else None):
                raise MlrlError(f"{folder}: expected version {number} with its parent before it; restore the folder")
            if folder != self.path(number):
                raise MlrlError(f"{folder}: holds version {number}, whose folder is {self.path(number)}; restore it")
        return manifests

    def of_batch(self, batch_id: str) -> Manifest | None:
        """The version that batch made, if it was published."""
        return next((m for m in reversed(self.chain()) if m.batch_id == batch_id), None)

    def metrics(self, version: int) -> dict[str, float]:
        """The metrics of a published version."""
        return json.loads((self.path(version) / "metrics.json").read_text())

    def publish(self, version: int, write: Callable[[Path], Manifest]) -> Path:
        """Let ``write`` fill a hidden folder (it returns the manifest) and commit it as ``version``.

        A failing ``write`` leaves nothing. Raises MlrlError when the version exists.
        """
        target = self.path(version)
        partial = self.partial(version)
        partial.mkdir(parents=True)
        try:
            manifest = write(partial)
            _write_text(partial / "manifest.json", json.dumps(asdict(manifest), indent=2, sort_keys=True))
            _write_text(partial / "DONE", "")
            for path in partial.rglob("*"):
                fsync(path)
            fsync(partial)
            _commit(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return target

    def prune(self) -> list[Path]:
        """Drop the state of versions that nobody will train on again; adapters, metrics and manifests stay."""
        versions = sorted(int(done.parent.name) for done in self.root.glob("[0-9]*/DONE"))
        dropped = []
        for version in versions[:-KEEP_STATES]:
            state = self.path(version) / "state"
            if version % KEEP_EVERY and state.is_dir():
                shutil.rmtree(state)
                dropped.append(state)
        return dropped


def folder_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fsync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _commit(partial: Path, target: Path) -> None:
    try:
        partial.rename(target)  # fails onto a folder that isn't empty, and a version's folder never is
    except OSError as error:
        raise MlrlError(f"{target}: exists already ({error.strerror}): two learners on one run?") from None
    fsync(target.parent)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)


def _read_manifest(folder: Path) -> Manifest:
    if not (folder / "DONE").exists():
        raise MlrlError(f"{folder}: a version without DONE: it was not published by the learner; move it away")
    try:
        raw = json.loads((folder / "manifest.json").read_text())
        return Manifest(**{f.name: raw[f.name] for f in fields(Manifest) if f.name in raw or f.default is MISSING})
    except (OSError, ValueError, KeyError) as error:
        raise MlrlError(f"{folder}: its manifest can't be read ({error}); restore the folder") from None
