"""An earlier solution as an improve prompt shows it: program, output and what came of it.

What the host says of it comes from a fixed vocabulary, so that the grader is no oracle; what the program printed is
cleaned, shortened and free of everything that instrumentation put in.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlrl_core.agent.feedback import error_of
from mlrl_core.competitions.reasons import REASONS
from mlrl_core.records import Execution, Experience
from mlrl_core.sandbox.output import capture_text
from mlrl_core.sandbox.sanitise import one_line, sanitise

_LINE_CHARS = 200
_LINES_AT_EITHER_END = 150
_SOURCE_CHARS, _MESSAGE_CHARS = 100, 150


@dataclass(frozen=True, slots=True)
class Earlier:
    """``outcome`` is one or two sentences; ``output`` may be empty, and ``code`` where the answer held none."""

    code: str
    output: str
    outcome: str


def earlier_of(row: Experience, metric: str, time_limit_s: float, show_milestones: bool = True) -> Earlier:
    """The earlier solution of an improve prompt. Tracebacks in ``row`` name the lines of the program as written."""
    said = outcome_text(row, metric, time_limit_s)
    if show_milestones and row.execution and row.execution.milestones:
        said += f" It got as far as: {', '.join(row.execution.milestones)}."
        values = row.execution.milestone_values.items()
        said += "".join(f" Its {label} was {value:.5g}." for label, value in values)
    return Earlier(row.solution.code or "", _output(row.execution), said)


def outcome_text(row: Experience, metric: str, time_limit_s: float) -> str:
    """What came of a solution, in words that hold nothing of the answers."""
    execution, score = row.execution, row.score
    if row.outcome == "graded" and score is not None and score.raw is not None:
        return f"It scored {score.raw:.5g} ({metric}, {'lower' if score.is_lower_better else 'higher'} is better)."
    if row.outcome == "invalid_submission":
        reason = (score.reason if score else None) or (execution.submission_reason if execution else None) or "invalid"
        return f"Its submission was refused: {REASONS.get(reason, reason)}."
    if row.outcome == "error":
        return _error_text(row)
    return {
        "no_code": "It held no program.",
        "no_submission": "It ended without having written ./submission.csv.",
        "timeout": f"It was stopped after {time_limit_s:g} seconds, the time limit.",
        "oom": "It was stopped because it used too much memory.",
        "output_limit": "It was stopped because it printed too much.",
    }.get(row.outcome, "It was not run.")


def _error_text(row: Experience) -> str:
    error = error_of(capture_text(row.execution.stderr)) if row.execution else None
    if error is None:
        return "It ended with an error."
    message = one_line(error.message, _MESSAGE_CHARS)
    text = f"It failed with {one_line(error.kind, _SOURCE_CHARS)}"
    lines = (row.solution.code or "").split("\n")
    if error.line is not None and error.line <= len(lines):
        text += f" in line {error.line}, `{one_line(lines[error.line - 1].strip(), _SOURCE_CHARS)}`"
    return f"{text}: {message}" if message else f"{text}."


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
