"""What went wrong in a run, read from its standard error: for improve prompts and for ``error_line`` credit.

The text is the program's own, so none of this decides an outcome, and credit for it stays below any valid reward.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlrl_core.records import Outcome

_FRAME = re.compile(r'^  File "[^"\n]*solution\.py", line (\d+)', re.MULTILINE)
_HEAD = "Traceback (most recent call last):"
_GROUP = "Exception Group Traceback"
_MARGIN = re.compile(r"^ *[|+] ", re.MULTILINE)  # of each line of a group
_ERROR = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_BEFORE_RUNNING = frozenset({"SyntaxError", "IndentationError", "TabError"})


@dataclass(frozen=True, slots=True)
class ProgramError:
    """The exception that ended a program. ``line`` is 1-based, of the deepest frame in the program itself; None where
    no frame names it."""

    kind: str
    message: str
    line: int | None


def error_of(stderr: str) -> ProgramError | None:
    """The last exception reported in ``stderr`` (line numbers as in the program), or None where there is none."""
    if _GROUP in stderr:
        stderr = _MARGIN.sub("", stderr)
    start = stderr.rfind(_HEAD)
    frames = list(_FRAME.finditer(stderr, max(start, 0)))
    if start < 0 and not frames:
        return None
    last = frames[-1].end() if frames else start + len(_HEAD)
    for line in stderr[last:].split("\n")[1:]:
        if line and not line[0].isspace() and (match := _ERROR.match(line)):
            return ProgramError(match["kind"], match["message"] or "", int(frames[-1][1]) if frames else None)
    return None


def line_share(outcome: Outcome, stderr: str, code: str) -> float:
    """How far a program came by the line of its exception, as a share of its lines in [0, 1].

    A program that ended by itself came to its end; one that does not parse, or that was killed, has no such line.
    """
    if outcome in ("no_submission", "invalid_submission", "graded"):
        return 1.0
    if outcome != "error":
        return 0.0
    error = error_of(stderr)
    if error is None or error.line is None or error.kind in _BEFORE_RUNNING:
        return 0.0
    return min(error.line / max(len(code.rstrip().split("\n")), 1), 1.0)
