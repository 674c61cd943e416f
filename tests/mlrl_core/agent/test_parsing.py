"""A response is a plan and at most one program, taken as it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrl_core.agent import parse_response

CODE = "import numpy as np\nprint(1)\n"


@pytest.mark.parametrize(
    ("text", "plan", "code"),
    [
        (f"Plan: a.\n```python\n{CODE}```", "Plan: a.", CODE),
        (f"Plan: a.\n```python\n{CODE}```\nThat is it.", "Plan: a.", CODE),
        (f"Plan.\n```Python3\n{CODE}```", "Plan.", CODE),
        (f"Plan.\n```\n{CODE}```", "Plan.", CODE),
        (f"Plan.\n~~~py\n{CODE}~~~", "Plan.", CODE),
        # The last complete Python block wins, over an earlier one and over a later one of another kind.
        (f"A.\n```python\nx = 0\n```\nB.\n```python\n{CODE}```", "A.\n```python\nx = 0\n```\nB.", CODE),
        (f"A.\n```python\n{CODE}```\nRun it:\n```bash\npython s.py\n```", "A.", CODE),
        # Cut off at the token limit: an open block is better than nothing, a complete one better than an open one.
        (f"Plan.\n```python\n{CODE}", "Plan.", CODE),
        (f"Plan.\n```python\n{CODE}```\n```python\nimport", "Plan.", CODE),
        # A longer fence holds shorter ones; a fence inside a line is text.
        ("P.\n````python\ns = '''\n```\n'''\n````", "P.", "s = '''\n```\n'''\n"),
        ("P.\n```python\nprint('```')\n```", "P.", "print('```')\n"),
        # No fence at all.
        (CODE, "", CODE),
        ("I would train a model.", "I would train a model.", None),
        ("hello", "hello", None),
        ("42", "42", None),
        ("", "", None),
        ("```python\n```", "```python\n```", None),
        # A program that does not parse is still a program.
        ("P.\n```python\nprint((\n```", "P.", "print((\n"),
    ],
)
def test_plan_and_program(text: str, plan: str, code: str | None) -> None:
    parsed = parse_response(text)
    assert (parsed.plan, parsed.code) == (plan, code)


@given(st.text(alphabet=st.sampled_from(list("`~ \npython=x1()#'\"\\\t\r\x00é"))) | st.text())
def test_any_text_is_parsed_and_code_is_never_rewritten(text: str) -> None:
    code = parse_response(text).code
    if code is not None:
        assert code.removesuffix("\n") in text


PIECES = (
    *("```", "````", "~~~", "```python", "``` python", "py", "\n", "\r\n", "\r", " ", "    ", "\t", "> ", "- ", "'''"),
    *(
        '"""',
        "#",
        "\\",
        "x = 1",
        "import os",
        "def f():\n    return 1",
        "print('```')",
        "{",
        "}",
        "<|im_end|>",
        "\u2028",
    ),
)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_mixture_of_fences_is_parsed_and_code_is_never_rewritten(text: str) -> None:
    code = parse_response(text).code
    if code is not None:
        assert code.removesuffix("\n") in text
