"""Programs of odd styles run as written, whoever places the prints, in an interpreter as the sandbox starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlrl_core.instrumentation import FrozenModel, Inserter, instrument
from mlrl_core.sandbox.output import MilestoneFilter
from mlrl_core.sandbox.programs import PYTHON_FLAGS
from tests.mlrl_core.instrumentation.odd import ODD_PROGRAMS
from tests.mlrl_core.instrumentation.scripted import RandomLines, Rewriter
from tests.mlrl_core.instrumentation.varied import write_inputs

NONCE = "#mlrl:0123456789abcdef:"
Ran = tuple[int, bytes, bytes | None]


def ran(source: str, folder: Path) -> Ran:
    """Exit code, output and submission."""
    folder.mkdir()
    write_inputs(folder)
    (folder / "solution.py").write_bytes(source.encode())
    command = [sys.executable, "-S", *PYTHON_FLAGS, "solution.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
    submission = folder / "submission.csv"
    return done.returncode, done.stdout, submission.read_bytes() if submission.exists() else None


@pytest.mark.parametrize("name", ODD_PROGRAMS)
def test_an_odd_program_runs_as_written(name: str, tmp_path: Path) -> None:
    code = ODD_PROGRAMS[name]
    original = ran(code, tmp_path / "original")
    assert original[0] == 0
    assert original[2] is not None
    models: dict[Inserter, FrozenModel | None] = {"ast": None, "lm_lines": RandomLines(1), "lm_rewrite": Rewriter(1)}
    for inserter, model in models.items():
        program = instrument(code, inserter, NONCE, model, on_failure="original")
        if inserter == "ast":
            assert program.fallback_reason is None
            assert len(program.milestones) >= 2
        if program.source == code:
            continue
        status, printed, submission = ran(program.source, tmp_path / inserter)
        milestones = MilestoneFilter(NONCE, program.milestones)
        kept = milestones.feed(printed) + milestones.finish()
        assert (status, kept, submission) == original, inserter
