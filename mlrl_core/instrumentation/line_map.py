"""Lead what an instrumented run printed back to the program as it was written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlrl_core.instrumentation.milestones import SWALLOWED

# In a traceback, and in a warning or a log record.
_LINE = re.compile(r'(File "[^"\n]*solution\.py", line |\bsolution\.py:)(\d+)')


def original_lines(text: str, line_map: Sequence[int]) -> str:
    """``text`` (tracebacks, warnings) with the line numbers of ``solution.py`` as in the original program.

    A line that was inserted takes the number of the original line before it. Numbers outside the map stay.
    """

    def back(match: re.Match[str]) -> str:
        number = int(match[2])
        while 1 <= number <= len(line_map):
            if line_map[number - 1]:
                return f"{match[1]}{line_map[number - 1]}"
            number -= 1
        return match[0]

    return _LINE.sub(back, text)


def without_nonce(text: str, nonce: str) -> str:
    """``text`` without the lines that hold ``nonce``, and without the second half of what was inserted behind one: a
    program can print its own source, and what goes back to the policy, to people or into artifacts must not show it."""
    if not nonce or nonce not in text:
        return text
    kept: list[str] = []
    behind = False
    for line in text.splitlines(keepends=True):
        removed = nonce in line or (behind and line.rstrip().endswith(SWALLOWED))
        behind = nonce in line
        if not removed:
            kept.append(line)
    return "".join(kept)
