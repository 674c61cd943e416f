"""Hand-over between the stages of one solution: small files in its work folder, published whole.

A stage finds its output here after a kill and does not work twice. The folder goes once the experience is in place.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TypeVar

from mlrl_core.experience.codec import decode, encode
from mlrl_core.experience.files import publish_text, read_text
from mlrl_core.experience.run_directory import RunDirectory
from mlrl_core.records import Execution, InstrumentedProgram, Solution

R = TypeVar("R", Solution, InstrumentedProgram, Execution)

_FILE = {Solution: "solution.json", InstrumentedProgram: "program.json", Execution: "execution.json"}


class WorkFolder:
    """The hand-over files of one solution."""

    def __init__(self, run: RunDirectory, solution_id: str) -> None:
        self.path = run.work(solution_id)

    @property
    def submission(self) -> Path:
        """Where the sandbox puts the collected submission."""
        return self.path / "submission.csv"

    def put(self, record: Solution | InstrumentedProgram | Execution) -> None:
        """Publish a stage's output."""
        publish_text(self.path / _FILE[type(record)], json.dumps(encode(record)))

    def get(self, kind: type[R]) -> R | None:
        """A stage's output, or None where the stage has not ended."""
        path = self.path / _FILE[kind]
        return decode(kind, json.loads(read_text(path))) if path.exists() else None

    def require(self, kind: type[R]) -> R:
        """A stage's output that must be there: the stages before have ended."""
        record = self.get(kind)
        if record is None:
            raise FileNotFoundError(f"{self.path / _FILE[kind]}: the stage before has not published its output")
        return record

    def remove(self) -> None:
        """Drop the folder: the experience row holds everything."""
        shutil.rmtree(self.path, ignore_errors=True)
