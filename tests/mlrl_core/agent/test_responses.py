"""Responses as models write them: ``tests/cases/responses`` marks in each which part is the program.

A case begins with ``=== name``; ``⟦`` and ``⟧`` stand around the program that is to be found, byte for byte. A case
without them holds none. Those of ``sampled.txt`` were sampled from the untrained SmolLM2-135M-Instruct, by
``tests/benchmarks/sampled_responses.py`` (two of its twelve began a program, none ended it within 400 tokens), and then
marked; the others are written by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.agent import parse_response

FOLDER = Path(__file__).parents[2] / "cases" / "responses"


def _cases() -> list[tuple[str, str]]:
    cases: list[tuple[str, str]] = []
    for path in sorted(FOLDER.glob("*.txt")):
        for part in path.read_bytes().decode().split("=== ")[1:]:
            name, _, body = part.partition("\n")
            cases.append((name, body.removesuffix("\n")))
    return cases


CASES = _cases()


def _check(marked: str) -> None:
    before, opened, rest = marked.partition("⟦")
    code, _, after = rest.partition("⟧")
    text = before + code + after
    parsed = parse_response(text)
    if not opened:
        assert (parsed.code, parsed.plan) == (None, text.strip())
        return
    assert parsed.code == code
    prose = before.rstrip("\r\n").split("\n")[:-1]  # without the line of the fence
    assert parsed.plan == "\n".join(prose).strip()


@pytest.mark.parametrize(("name", "marked"), CASES, ids=[name for name, _ in CASES])
def test_the_marked_program_is_found(name: str, marked: str) -> None:
    _check(marked)


@pytest.mark.parametrize(("name", "marked"), CASES, ids=[name for name, _ in CASES])
def test_line_ends_of_windows_change_nothing(name: str, marked: str) -> None:
    _check(marked.replace("\n", "\r\n"))


def test_there_are_enough() -> None:
    names = {name for name, _ in CASES}
    assert len(names) == len(CASES) >= 80
    assert sum(name.startswith("sampled ") for name in names) >= 12
