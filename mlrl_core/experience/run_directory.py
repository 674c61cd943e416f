"""Where everything of a run lies, who owns it, and the seeds that follow from it.

The layout is the contract of design section 3; the run's key is the directory's name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.config import RunConfig, dump_toml, load_run_config
from mlrl_core.errors import MlrlError
from mlrl_core.experience.files import publish_text


def solution_id_of(wave: int, slot: int) -> str:
    """``00012-037``: wave 12, slot 37. Sorting ids sorts by wave and slot."""
    return f"{wave:05d}-{slot:03d}"


def wave_of(solution_id: str) -> int:
    """The wave in a solution's id."""
    return int(solution_id.split("-")[0])


def slot_of(solution_id: str) -> int:
    """The slot in a solution's id."""
    return int(solution_id.split("-")[1])


def solution_seed(run_seed: int, wave: int, slot: int) -> int:
    """Sampling seed (31 bits) of one solution: from the run's seed, never from its place or time."""
    digest = hashlib.sha256(f"{run_seed}/{wave}/{slot}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass(frozen=True)
class RunDirectory:
    """Paths of one run. Wave n is sampled by version n - 1; batch n, cut while it runs, makes version n."""

    path: Path

    @classmethod
    def check_new(cls, path: Path) -> None:
        """Raise MlrlError unless a new run can be made at ``path``; writes nothing."""
        path = path.absolute()
        try:
            if (path / "config.toml").exists():
                raise MlrlError(f"{path} already holds a run: go on with it by --resume {path}, or give another --run")
            if path.exists() and any(path.iterdir()):
                raise MlrlError(f"{path} is not empty and holds no run: give a new or empty directory as --run")
            existing = next(p for p in (path, *path.parents) if p.exists())
            if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
                raise MlrlError(f"{path}: {existing} can't be written: give a writable directory as --run")
        except OSError as error:
            raise MlrlError(f"{path}: {error.strerror}: give a writable directory as --run") from None

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunDirectory:
        """A new run: the directory must be new or empty. Raises MlrlError and changes nothing otherwise."""
        path = path.absolute()
        cls.check_new(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            publish_text(path / "config.toml", dump_toml(config))
        except OSError as error:
            raise MlrlError(
                f"{path}: can't be written ({error.strerror}): give a writable directory as --run"
            ) from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run. Raises MlrlError where there is none."""
        path = path.absolute()
        if not (path / "config.toml").is_file():
            raise MlrlError(f"{path} holds no run (no config.toml): `mlrl runs` lists the runs")
        if not os.access(path, os.W_OK):
            raise MlrlError(f"{path}: can't be written: make it writable for this user")
        return cls(path)

    def load_config(self) -> RunConfig:
        """The resolved configuration of the run."""
        return load_run_config(self.path / "config.toml")

    @property
    def key(self) -> str:
        return self.path.name

    @property
    def state_path(self) -> Path:
        return self.path / "state.json"

    @property
    def log_path(self) -> Path:
        return self.path / "train.log"

    @property
    def experiences(self) -> Path:
        return self.path / "experiences"

    @property
    def versions(self) -> Path:
        return self.path / "versions"

    @property
    def report(self) -> Path:
        return self.path / "report"

    def launches(self, wave: int) -> Path:
        return self.path / "launches" / f"wave={wave:05d}.jsonl"

    def prompts(self, wave: int) -> Path:
        """What each slot of a wave is asked for, decided before it is sampled."""
        return self.path / "prompts" / f"wave={wave:05d}.json"

    def batch(self, number: int) -> Path:
        return self.path / "batches" / f"{number:05d}.parquet"

    def cut(self, number: int) -> Path:
        """Who left flight at step ``number``."""
        return self.path / "batches" / f"{number:05d}.cut.json"

    def batch_facts(self, number: int) -> Path:
        """What was found while batch ``number`` was weighed: metrics, and what the next batch builds on."""
        return self.path / "batches" / f"{number:05d}.json"

    def version(self, number: int) -> Path:
        return self.versions / f"{number:05d}"

    def work(self, solution_id: str) -> Path:
        """Hand-over files between the stages of one solution; gone once its experience is in place."""
        return self.path / "work" / f"wave={wave_of(solution_id):05d}" / solution_id

    def published_versions(self) -> list[int]:
        """Numbers of the versions that are complete, ascending."""
        return sorted(int(done.parent.name) for done in self.versions.glob("[0-9]*/DONE"))

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Own the run while training it. The kernel releases the lock when the process dies, however it dies.

        ``owner.json`` (host, pid, start) stays behind for whoever cleans up after a dead owner.
        """
        descriptor = os.open(self.path / "train.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise MlrlError(
                    f"{self.path} is being trained by {self._owner_text()}: wait for it or end it"
                ) from None
            owner = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
            publish_text(self.path / "owner.json", json.dumps(owner))
            yield
        finally:
            os.close(descriptor)

    def is_owned(self) -> bool:
        """Whether a live process is training this run."""
        path = self.path / "train.lock"
        if not path.exists():
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _owner_text(self) -> str:
        try:
            owner = json.loads((self.path / "owner.json").read_text())
            return f"process {owner['pid']} on {owner['host']}"
        except (OSError, ValueError, KeyError):
            return "another process"
