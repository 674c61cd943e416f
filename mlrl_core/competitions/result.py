"""The result of grading, before it becomes a record or a report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grade:
    """All that grading finds out. ``raw`` is None when invalid; ``exists`` is MLE-bench's ``submission_exists``;
    ``detail`` says in words what ``reason`` means here and stays on the host."""

    raw: float | None
    exists: bool
    reason: str | None = None
    detail: str | None = None
    warnings: tuple[str, ...] = ()
