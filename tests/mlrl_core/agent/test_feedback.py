"""The exception that ended a program, read back from real tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlrl_core.agent.feedback import ProgramError, error_of, line_share

NESTED = """\
def load(path):
    return open(path).read()

def main():
    return load("nowhere.csv")

main()
"""
CHAINED = """\
try:
    {}["a"]
except KeyError:
    raise RuntimeError("second: with a colon")
"""


def stderr_of(code: str, tmp_path: Path) -> str:
    script = tmp_path / "solution.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, "-I", str(script)], capture_output=True, text=True, timeout=60, check=False
    ).stderr


@pytest.mark.parametrize(
    ("code", "error", "share"),
    [
        ("x = 1\ny = 2\nx / 0\nz = 3\n", ProgramError("ZeroDivisionError", "division by zero", 3), 0.75),
        (NESTED, ProgramError("FileNotFoundError", "[Errno 2] No such file or directory: 'nowhere.csv'", 2), 2 / 7),
        (CHAINED, ProgramError("RuntimeError", "second: with a colon", 4), 1.0),
        ("x = 1\nassert x == 2", ProgramError("AssertionError", "", 2), 1.0),
        ("import json\njson.loads('{')\n", None, None),  # the deepest frame of the program is line 2
        ("class MyError(Exception): pass\nraise MyError('line 1\\nline 2')\n", None, 1.0),
    ],
)
def test_the_exception_and_its_line(code: str, error: ProgramError | None, share: float | None, tmp_path: Path) -> None:
    stderr = stderr_of(code, tmp_path)
    found = error_of(stderr)
    assert found is not None
    if error is not None:
        assert found == error
    else:
        assert found.line == 2
    if share is not None:
        assert line_share("error", stderr, code) == pytest.approx(share)


@pytest.mark.parametrize("code", ["print((\n", "if True:\nx = 1\n", "\tx = 1\n  y = 2\n"])
def test_a_program_that_does_not_parse_came_nowhere(code: str, tmp_path: Path) -> None:
    stderr = stderr_of(code, tmp_path)
    found = error_of(stderr)
    assert found is not None
    assert found.line is not None
    assert line_share("error", stderr, code) == 0.0


def test_no_exception() -> None:
    assert error_of("") is None
    assert error_of("UserWarning: something\nwarnings.warn(x)\n") is None
    assert error_of("Traceback (most recent call last):\n") is None
    assert line_share("error", "Killed", "x = 1\n") == 0.0


@pytest.mark.parametrize(
    ("outcome", "share"), [("no_submission", 1.0), ("invalid_submission", 1.0), ("timeout", 0.0), ("no_code", 0.0)]
)
def test_what_ended_without_an_exception(outcome: str, share: float) -> None:
    assert line_share(outcome, "", "x = 1\n") == share  # type: ignore[arg-type]


def test_a_forged_line_is_worth_no_more_than_the_end_of_the_program() -> None:
    forged = 'Traceback (most recent call last):\n  File "/work/solution.py", line 99999, in <module>\nValueError: x\n'
    assert line_share("error", forged, "x = 1\n") == 1.0


def test_the_last_exception_of_a_group(tmp_path: Path) -> None:
    script = tmp_path / "solution.py"
    script.write_text(
        "import asyncio\nasync def work(n):\n    return 1 / n\nasync def main():\n"
        "    async with asyncio.TaskGroup() as group:\n        group.create_task(work(0))\nasyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, timeout=60, check=False)
    assert error_of(ran.stderr) == ProgramError("ZeroDivisionError", "division by zero", 3)
    script.write_text("x = 1\nraise ExceptionGroup('several', [ValueError(1)])\n")
    ran = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, timeout=60, check=False)
    assert error_of(ran.stderr) == ProgramError("ExceptionGroup", "several (1 sub-exception)", 2)
