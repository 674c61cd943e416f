"""From the text of a response to a plan and at most one program. Never joins blocks, never rewrites code."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from mlrl_core.agent.syntax import parse_program

# A fence opens with three or more backticks or tildes at the start of a line and closes with at least as many of
# the same character alone on a line (CommonMark 4.5), so a shorter fence inside a program does not close it.
_FENCE_OPEN = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[^\s`]*)[^`\n]*$")
# Models also open one behind the words that announce it; with the tag that can hardly be meant otherwise.
_FENCE_BEHIND = re.compile(
    r"^(?! *>)[^`]*[^`\s][^`]*(?P<fence>`{3,})(?P<tag>(?:python|py)[\d.]*)[ \t]*\r?$", re.IGNORECASE
)
_PYTHON_TAG = re.compile(r"[{.]*(python|py)[\d.]*(?![\w-])")
# What decides whether a line ends inside a triple-quoted string: comments, strings of one line, triple quotes.
_LEXEME = re.compile(r"#.*|\"\"\"|'''|\"(?:\\.|[^\"\\])*(?:\"|$)|'(?:\\.|[^'\\])*(?:'|$)")


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """``code`` is None when the response holds nothing that could be a program; an empty ``plan`` says that there
    was none."""

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
    complete_python = [b for b in blocks if b.complete and _PYTHON_TAG.match(b.tag)]
    if candidates := complete_python or blocks:
        chosen = candidates[-1]
        return ParsedResponse(plan="\n".join(lines[: chosen.start]).strip(), code=chosen.code)
    return ParsedResponse(plan="", code=text) if _is_program(text) else ParsedResponse(plan=text.strip(), code=None)


def _blocks(lines: list[str]) -> list[_Block]:
    blocks: list[_Block] = []
    number = 0
    while number < len(lines):
        match = _FENCE_OPEN.match(lines[number]) or _FENCE_BEHIND.match(lines[number])
        if match is None:
            number += 1
            continue
        tag, end = match["tag"].lower(), _closing_line(lines, number, match["fence"])
        if end is None:
            blocks.append(_Block(tag, "\n".join(lines[number + 1 :]), False, number))
            break
        blocks.append(_Block(tag, _joined(lines[number + 1 : end]), True, number))
        number = end + 1
    return blocks


def _closing_line(lines: list[str], opening: int, fence: str) -> int | None:
    """Index of the line that closes the block, or None where it is cut off.

    By CommonMark the first fence closes, even within a program's triple-quoted string. Such a fence is passed over
    when the first one outside of any string makes a block that parses: only then was it part of the program.
    """
    first: int | None = None
    quotes = ""  # of the triple-quoted string that is open
    for number in range(opening + 1, len(lines)):
        line = lines[number]
        if _closes(line, fence):
            if first is None:
                first = number
            if not quotes:
                whole = first == number or parse_program(_joined(lines[opening + 1 : number])) is not None
                return number if whole else first
        quotes = _open_quotes(line, quotes)
    return first


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(fence) and set(stripped) == {fence[0]} and not line.startswith("    ")


def _open_quotes(line: str, quotes: str) -> str:
    """The triple quotes that are open at the end of ``line``, given those at its start; empty = none."""
    position = 0
    while True:
        if quotes:
            end = re.compile(rf"\\.|{quotes}").search(line, position)
            if end is None:
                return quotes
            position, quotes = end.end(), "" if end[0] == quotes else quotes
        else:
            lexeme = _LEXEME.search(line, position)
            if lexeme is None:
                return ""
            position = lexeme.end()
            quotes = lexeme[0] if lexeme[0] in ('"""', "'''") else ""


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _is_program(text: str) -> bool:
    tree = parse_program(text)
    # One word, a number or a quoted sentence parses too, and is no program.
    return tree is not None and any(
        not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body
    )
