"""What an improve prompt says of an earlier solution: a fixed vocabulary and clean output."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mlrl_core.agent.earlier import earlier_of, longest_outcomes
from mlrl_core.competitions.reasons import REASONS
from mlrl_core.instrumentation import MILESTONES
from mlrl_core.records import EXCLUDED_OUTCOMES, OUTCOMES, Experience, Score, StreamCapture
from tests.fakes import experience

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/work/solution.py", line 2, in <module>\n    x = table["price"]\n'
    "KeyError: 'price'\n"
)


def row(outcome: str, stdout: str = "", stderr: str = "", **changes: Any) -> Experience:
    made = experience(1, 0, outcome, code="import os\nx = table['price']\n", raw=0.123456789)
    assert made.execution is not None
    execution = dataclasses.replace(
        made.execution,
        stdout=StreamCapture(stdout, "", len(stdout.encode())),
        stderr=StreamCapture(stderr, "", len(stderr.encode())),
        **changes,
    )
    return dataclasses.replace(made, execution=execution)


def said(made: Experience, show_milestones: bool = False) -> str:
    return earlier_of(made, "rmsle", 600, show_milestones).outcome


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (row("graded"), "It scored 0.12346 (rmsle, lower is better)."),
        (row("error", stderr=TRACEBACK), "It ended with an error."),
        (row("error"), "It ended with an error."),
        (row("timeout"), "It was stopped after 600 seconds, the time limit."),
        (row("oom"), "It was stopped because it used too much memory."),
        (row("output_limit"), "It was stopped because it printed too much."),
        (row("no_submission"), "It ended without having written ./submission.csv."),
        (
            dataclasses.replace(row("invalid_submission"), score=Score(None, False, True, reason="wrong_row_count")),
            "Its submission was refused: the number of rows is not that of the test set.",
        ),
        (
            dataclasses.replace(row("invalid_submission", submission_reason="too_large"), score=None),
            "Its submission was refused: the file is far larger than the sample submission.",
        ),
    ],
)
def test_what_came_of_it(made: Experience, text: str) -> None:
    assert said(made) == text


def test_what_the_program_said_of_its_end() -> None:
    def error(made: Experience) -> str:
        return earlier_of(made, "rmsle", 600).error

    assert error(row("error", stderr=TRACEBACK)) == "KeyError in line 2, `x = table['price']`: 'price'"
    assert error(row("error")) == ""
    assert error(row("timeout", stderr=TRACEBACK)) == ""
    assert len(error(row("error", stderr=f"{TRACEBACK[:-8]}{'x' * 500}\n"))) < 300
    assert "\n" not in error(row("error", stderr=TRACEBACK.replace("KeyError", "\x1b[31mKeyError\u2028")))
    mac = row("error", stderr=TRACEBACK)
    mac = dataclasses.replace(mac, solution=dataclasses.replace(mac.solution, code="import os\rx = 1 / 0\r"))
    assert error(mac) == "KeyError in line 2, `x = 1 / 0`: 'price'"


def test_no_outcome_is_longer_than_the_longest() -> None:
    longest = max(map(len, longest_outcomes("rmsle")))
    values = {"training loss": -1.23456e-300, "validation score": -1.23456e300}
    for outcome in set(OUTCOMES) - EXCLUDED_OUTCOMES - {"no_code"}:  # which ran nothing
        for reason in REASONS:
            made = row(outcome, stderr=TRACEBACK, milestones=MILESTONES, milestone_values=values)
            score = Score(-1.23456e-300 if outcome == "graded" else None, outcome == "graded", False, reason)
            assert len(said(dataclasses.replace(made, score=score), show_milestones=True)) <= longest


def test_a_score_of_zero_is_a_score() -> None:
    made = row("graded")
    assert made.score is not None
    assert "It scored 0 (" in said(dataclasses.replace(made, score=dataclasses.replace(made.score, raw=0.0)))


def test_milestones_are_a_switch() -> None:
    made = row("error", milestones=("imported packages", "loaded data"), milestone_values={"training loss": 0.5})
    assert "It got as far as: imported packages, loaded data. Its training loss was 0.5." in said(made, True)
    assert "imported" not in said(made)


def test_output_is_clean_and_short() -> None:
    bar = "\r".join(f"{i}%" for i in range(101))
    made = row("graded", stdout=f"\x1b[31mred\x1b[0m\n{bar}\n{'y' * 9999}\n\n\nlast\n", stderr="warning\u202e\n")
    output = earlier_of(made, "rmsle", 600).output
    lines = output.split("\n")
    assert lines[0] == "red"
    assert "\r" not in output
    assert "\u202e" not in output
    assert max(map(len, lines)) <= 200
    assert lines[-2:] == ["last", "warning\\u202e"]
    flood = row("graded", stdout="".join(f"{i}\n" for i in range(5000)))
    lines = earlier_of(flood, "rmsle", 600).output.split("\n")
    assert len(lines) == 301
    assert lines[150] == "[... 4700 lines cut ...]"
