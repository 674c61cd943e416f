"""How client and worker talk: small JSON files in one folder per attempt, each published by rename.

``<run>/learner/attempt-00003/``: ``config.toml``, ``worker.log``, ``rank-00000.json``, ``ready.json``,
``heartbeat.json``, ``request-000001.json`` and its ``answer-000001.json``, ``mistake.json`` of a worker that ended with
one. A new attempt never sees an old request.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mlrl_core.experience.files import publish_text


@dataclass(frozen=True)
class Session:
    """The files of one attempt."""

    folder: Path

    @classmethod
    def create(cls, run_dir: Path) -> Session:
        """A folder with the next free number."""
        root = Path(run_dir) / "learner"
        root.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(p.name.removeprefix("attempt-")) for p in root.glob("attempt-[0-9]*")), default=0)
        folder = root / f"attempt-{number:05d}"
        folder.mkdir()
        return cls(folder)

    @property
    def log(self) -> Path:
        return self.folder / "worker.log"

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def ready(self) -> Path:
        return self.folder / "ready.json"

    @property
    def heartbeat(self) -> Path:
        return self.folder / "heartbeat.json"

    @property
    def mistake(self) -> Path:
        return self.folder / "mistake.json"

    def enlist(self, rank: int) -> None:
        """Record this process as ``rank``, so that it can be found and ended."""
        put(self.folder / f"rank-{rank:05d}.json", {"pid": os.getpid(), "since": psutil.Process().create_time()})

    def processes(self) -> list[psutil.Process]:
        """The enlisted processes that still live."""
        living = []
        for path in sorted(self.folder.glob("rank-*.json")):
            entry = json.loads(path.read_text())
            try:
                process = psutil.Process(entry["pid"])
                if process.create_time() == entry["since"]:  # else the number belongs to somebody else by now
                    living.append(process)
            except psutil.NoSuchProcess:
                continue
        return living

    def request(self, number: int) -> Path:
        return self.folder / f"request-{number:06d}.json"

    def answer(self, number: int) -> Path:
        return self.folder / f"answer-{number:06d}.json"

    def last_words(self, lines: int = 12) -> str:
        """The end of the worker's log, for an error message."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"


def put(path: Path, content: dict[str, Any]) -> None:
    """Publish ``content`` at ``path``: a reader sees all of it or none."""
    publish_text(path, json.dumps(content))


def get(path: Path) -> dict[str, Any] | None:
    """What is published at ``path``, or None while nothing is."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
