"""What a program printed must not act on a terminal, a log or a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrl_core.sandbox.sanitise import fenced, one_line, sanitise
from tests.mlrl_core.sandbox.conftest import UNHURRIED


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;file:///etc/passwd\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mC1", "C1"),
        ("\x1b]never closed\nnext line", "\nnext line"),
        ("\x1bcreset", "reset"),
        ("50%\r100%\r\n", "50%\n100%\n"),
        ("a\0b", "ab"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("bell\x07", "bell\\x07"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("tab\tand\nlines, Grüße, 漢字, 🙂", "tab\tand\nlines, Grüße, 漢字, 🙂"),
        ("%s %(reward)d {score} ${PATH}", "%s %(reward)d {score} ${PATH}"),
    ],
)
def test_sanitise(printed: str, shown: str) -> None:
    assert sanitise(printed) == shown


@UNHURRIED
@given(st.text())
def test_nothing_that_acts_is_left(text: str) -> None:
    clean = sanitise(text)
    assert not {character for character in clean if character < " " and character not in "\n\t"}
    assert not set(clean) & set("\x1b\x7f\x9b\u2028\u2029\u202e\u2066")
    assert sanitise(clean) == clean
    assert len(one_line(text).splitlines()) <= 1


@UNHURRIED
@given(st.text(alphabet="`ab\n"))
def test_a_fence_is_never_closed_from_inside(text: str) -> None:
    lines = fenced(text).split("\n")
    assert lines[0] == lines[-1]
    assert set(lines[0]) == {"`"}
    assert not [line for line in lines[1:-1] if lines[0] in line]


def test_log_line_is_bounded() -> None:
    assert len(one_line("x" * 10_000)) == 300
