"""From the text of a response to a plan and at most one program. Never joins blocks, never rewrites code."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

# A fence opens with three or more backticks or tildes at the start of a line and closes with at least as many of
# the same character alone on a line (CommonMark 4.5), so a shorter fence inside a program does not close it.
_FENCE_OPEN = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[^\s`]*)[^`\n]*$")
_PYTHON_TAGS = frozenset({"python", "py", "python3", "py3"})


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """``code`` is None when the response holds nothing that could be a program."""

    plan: str
    code: str | None


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str
    code: str
    complete: bool
    start: int  # index of the line that opens it


def parse_response(text: str) -> ParsedResponse:
    """The last complete Python block, else the last block of any kind, else the text itself where it parses.

    The plan is the prose before that block. A program that does not parse is still a program: running it is what
    tells (method.md section 4).
    """
    lines = text.split("\n")
    blocks = [block for block in _blocks(lines) if block.code.strip()]
    complete_python = [b for b in blocks if b.complete and b.tag in _PYTHON_TAGS]
    if candidates := complete_python or blocks:
        chosen = candidates[-1]
        return ParsedResponse(plan="\n".join(lines[: chosen.start]).strip(), code=chosen.code)
    return ParsedResponse(plan="", code=text) if _is_program(text) else ParsedResponse(plan=text.strip(), code=None)


def _blocks(lines: list[str]) -> list[_Block]:
    blocks: list[_Block] = []
    fence, tag, start = "", "", 0
    for number, line in enumerate(lines):
        if not fence:
            if match := _FENCE_OPEN.match(line):
                fence, tag, start = match["fence"], match["tag"].lower(), number
        elif _closes(line, fence):
            code = "".join(f"{line}\n" for line in lines[start + 1 : number])
            blocks.append(_Block(tag, code, True, start))
            fence = ""
    if fence:
        blocks.append(_Block(tag, "\n".join(lines[start + 1 :]), False, start))
    return blocks


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(fence) and set(stripped) == {fence[0]} and not line.startswith("    ")


def _is_program(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # One word, a number or a quoted sentence parses too, and is no program.
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body)
