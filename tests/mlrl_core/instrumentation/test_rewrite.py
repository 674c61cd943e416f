"""What a model's answer may change: nothing but allowed prints."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mlrl_core.instrumentation import FrozenModelError, instrument
from mlrl_core.instrumentation.frozen import Question

NONCE = "#mlrl:0123456789abcdef:"
CODE = """\
import os

def f(x):
    if x > 0:
        return x
    return -x

data = [f(i) for i in range(3)]
loss = sum(data) / 3
print(loss)
"""


class Fixed:
    """Gives one answer to everything."""

    def __init__(self, text: str, ended: bool = True) -> None:
        self.text, self.ended = text, ended

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        raise FrozenModelError("the prompt is too long")

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        assert CODE.rstrip() in instruction
        return self.text, self.ended


def rewritten(text: str, ended: bool = True) -> tuple[tuple[str, ...], str | None, str]:
    program = instrument(CODE, "lm_rewrite", NONCE, Fixed(text, ended), on_failure="original")
    return program.milestones, program.fallback_reason, program.source


def with_line(after: str, line: str) -> str:
    return CODE.replace(after, f"{after}\n{line}", 1)


@pytest.mark.parametrize(
    ("text", "milestones"),
    [
        (CODE, ()),
        (with_line("import os", 'print("imported packages")'), ("imported packages",)),
        (
            with_line("import os", "print('imported packages')\nprint('loaded data')"),
            ("imported packages", "loaded data"),
        ),
        (with_line("loss = sum(data) / 3", 'print("training loss:", loss)'), ("training loss",)),
        (with_line("loss = sum(data) / 3", 'print(f"training loss: {loss}")'), ("training loss",)),
        # Formatting and comments are not the program.
        ("import os  # all\n" + CODE.split("\n", 1)[1].replace("    ", "  "), ()),
        # Before the first statement of a block there is nothing to stand behind.
        (CODE.replace("def f(x):\n", "def f(x):\n    print('loaded data')\n"), ()),
    ],
)
def test_allowed_answers(text: str, milestones: tuple[str, ...]) -> None:
    for answer in (f"{text}```\n", f"{text}```", text):
        placed, reason, source = rewritten(answer)
        assert (placed, reason) == (milestones, None)
        kept = [line for line in source.split("\n") if NONCE not in line and "except BaseException: pass" not in line]
        assert "\n".join(kept) == CODE  # the original text, comments and all


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CODE.replace("range(3)", "range(4)"), "not the same program"),
        (CODE.replace("return -x", "return -x\n    print('done')"), "not the same program"),
        (CODE.replace("data = ", "datas = "), "not the same program"),
        (CODE.rsplit("\n", 2)[0], "not the same program"),
        (with_line("import os", 'print("imported packages", end="")'), "not the same program"),
        (with_line("import os", 'print("some label")'), "not the same program"),
        (with_line("import os", 'print("training loss:", os.getcwd())'), "not the same program"),
        (with_line("import os", 'print("training loss:", os.name)'), "not the same program"),
        (with_line("import os", 'print(f"training loss: {os.getcwd()}")'), "not the same program"),
        (with_line("import os", 'print(f"training loss: {loss!r:>{loss}}")'), "not the same program"),
        (with_line("import os", 'print("training loss")'), "not the same program"),  # no number
        (with_line("import os", 'print("loaded data:", loss)'), "not the same program"),
        (with_line("import os", "loss = 1"), "not the same program"),
        (CODE.replace("import os\n", ""), "not the same program"),
        ("print((\n", "does not parse"),
        ("I would put the prints here.", "does not parse"),
        ("", "not the same program"),
    ],
)
def test_refused_answers(text: str, reason: str) -> None:
    placed, why, source = rewritten(f"{text}\n```\n")
    assert placed == ()
    assert reason in (why or "")
    assert source == CODE


def test_a_cut_answer_is_refused_even_where_it_would_do() -> None:
    assert rewritten(CODE, ended=False)[1] == "the answer is cut off"
    assert rewritten(f"{CODE}```\nand more", ended=False)[1] is None  # the program itself is whole


def test_a_model_that_can_not_answer_falls_back() -> None:
    program = instrument(CODE, "lm_lines", NONCE, Fixed(""), on_failure="ast")
    assert (program.inserter, program.fallback_reason) == ("ast", "the prompt is too long")
    assert "imported packages" in program.milestones
    original = instrument(CODE, "lm_lines", NONCE, Fixed(""), on_failure="original")
    assert (original.inserter, original.source) == ("none", CODE)
    broken = instrument("print((\n", "lm_lines", NONCE, Fixed(""))
    assert broken.fallback_reason == "the program does not parse"


def test_a_number_that_is_none_breaks_nothing() -> None:
    text = with_line("import os", 'print("training loss:", never_assigned)')
    placed, reason, source = rewritten(f"{text}```\n")
    assert (placed, reason) == (("training loss",), None)
    exec(compile(source, "solution.py", "exec"), {})
