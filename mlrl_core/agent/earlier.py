"""An earlier solution as an improve prompt shows it: program, output and what came of it.

What the host says of it comes from a fixed vocabulary, so that the grader is no oracle; what the program printed is
cleaned, shortened and free of everything that instrumentation put in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlrl_core.agent.feedback import error_of
from mlrl_core.competitions.reasons import REASONS
from mlrl_core.instrumentation import MILESTONES, VALUED
from mlrl_core.records import Execution, Experience
from mlrl_core.sandbox.output import capture_text
from mlrl_core.sandbox.sanitise import one_line, sanitise

_LINE_CHARS = 200
_LINES_AT_EITHER_END = 150
_SOURCE_CHARS, _MESSAGE_CHARS = 100, 150
_LINE_END = re.compile(r"\r\n|\r|\n")  # as Python counts lines
_REFUSED = "Its submission was refused: {}."
_LONG = -1.2345e-300  # as long as a number is written


@dataclass(frozen=True, slots=True)
class Earlier:
    """``outcome`` is a few sentences of a fixed vocabulary, ``error`` what the program itself said of its end, in one
    line. Either of that and ``output`` may be empty, and ``code`` where the answer held none."""

    code: str
    output: str
    outcome: str
    error: str = ""


def earlier_of(row: Experience, metric: str, time_limit_s: float, show_milestones: bool = True) -> Earlier:
    """The earlier solution of an improve prompt. Tracebacks in ``row`` name the lines of the program as written."""
    said = outcome_text(row, metric, time_limit_s)
    if show_milestones and row.execution and row.execution.milestones:
        said += _milestones_text(row.execution.milestones, row.execution.milestone_values)
    return Earlier(row.solution.code or "", _output(row.execution), said, _error_text(row))


def longest_outcomes(metric: str) -> list[str]:
    """Outcomes than which ``earlier_of`` makes none that are longer: where these fit into a prompt, all do."""
    milestones = _milestones_text(MILESTONES, dict.fromkeys(VALUED, _LONG))
    refused = _REFUSED.format(max(REASONS.values(), key=len))
    return [f"{said}{milestones}" for said in (_scored(_LONG, metric, is_lower_better=False), refused)]


def outcome_text(row: Experience, metric: str, time_limit_s: float) -> str:
    """What came of a solution, in words that hold nothing of the answers."""
    execution, score = row.execution, row.score
    if row.outcome == "graded" and score is not None and score.raw is not None:
        return _scored(score.raw, metric, score.is_lower_better)
    if row.outcome == "invalid_submission":
        reason = (score.reason if score else None) or (execution.submission_reason if execution else None) or "invalid"
        return _REFUSED.format(REASONS.get(reason, reason))
    return {
        "error": "It ended with an error.",
        "no_code": "It held no program.",
        "no_submission": "It ended without having written ./submission.csv.",
        "timeout": f"It was stopped after {time_limit_s:g} seconds, the time limit.",
        "oom": "It was stopped because it used too much memory.",
        "output_limit": "It was stopped because it printed too much.",
    }.get(row.outcome, "It was not run.")


def _scored(score: float, metric: str, is_lower_better: bool) -> str:
    return f"It scored {score:.5g} ({metric}, {'lower' if is_lower_better else 'higher'} is better)."


def _milestones_text(milestones: Sequence[str], values: Mapping[str, float]) -> str:
    numbers = "".join(f" Its {label} was {value:.5g}." for label, value in values.items())
    return f" It got as far as: {', '.join(milestones)}.{numbers}"


def _error_text(row: Experience) -> str:
    if row.outcome != "error" or row.execution is None:
        return ""
    error = error_of(capture_text(row.execution.stderr))
    if error is None:
        return ""
    message = one_line(error.message, _MESSAGE_CHARS)
    text = one_line(error.kind, _SOURCE_CHARS)
    lines = _LINE_END.split(row.solution.code or "")
    if error.line is not None and 1 <= error.line <= len(lines):
        text += f" in line {error.line}, `{one_line(lines[error.line - 1].strip(), _SOURCE_CHARS)}`"
    return f"{text}: {message}" if message else text


def _output(execution: Execution | None) -> str:
    """Both streams, clean, with long lines and the middle of a long output cut."""
    if execution is None:
        return ""
    text = "\n".join(part for part in map(capture_text, (execution.stdout, execution.stderr)) if part.strip())
    lines = [line[:_LINE_CHARS].rstrip() for line in sanitise(text).split("\n")]
    lines = [line for line in lines if line]
    left_out = len(lines) - 2 * _LINES_AT_EITHER_END
    if left_out > 0:
        mark = f"[... {left_out} lines cut ...]"
        lines = [*lines[:_LINES_AT_EITHER_END], mark, *lines[-_LINES_AT_EITHER_END:]]
    return "\n".join(lines)
