"""The ``Competition`` record: where its files lie and how a submission to it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mlrl_core.competitions.board import Board

ExtraColumns = Literal["ignore", "refuse", "refuse_unless_id_first"]
RowSum = Literal["isclose", "round6"]
Pairing = Literal["by_id", "by_position"]
Source = Literal["builtin", "mlebench", "folder"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How the columns of a submission are read, checked and paired with the answers (grading rules of MLE-bench).

    ``columns``: ``ignore`` lets extra columns pass, ``refuse`` wants exactly the id and the targets in any order,
    ``refuse_unless_id_first`` wants exactly those with the id first. ``value_range`` bounds every target, inclusive
    and without tolerance. ``row_sum``: the targets of a row sum to one, within numpy's ``isclose`` (atol 1e-6, rtol
    1e-5) or rounded to six digits. ``pairing``: rows are matched after sorting by id, or by their position.
    """

    id_column: str | None
    target_columns: tuple[str, ...]
    columns: ExtraColumns = "ignore"
    value_range: tuple[float, float] | None = None
    row_sum: RowSum | None = None
    pairing: Pairing = "by_id"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A reference model on this competition's own split: its test score, and the CPU seconds of fit and prediction on
    one thread (None where not timed). Seconds depend on the machine; their ratios are what they are for."""

    score: float
    fit_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """Limits that a competition asks for; None leaves the run's own setting (``sandbox.*``) in force."""

    time_limit_s: float | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    gpus: int | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Competition:
    """One competition, ready to be solved and graded.

    ``public_dir`` is the only folder a program may see. ``constant_score`` and ``strong_score`` are raw scores of a
    constant prediction and of a strong model: 0 and 1 of the ``bounded`` reward map (None where unknown).
    ``grade_script`` is a user's own ``grade.py`` and ``mlebench_python`` the interpreter of an MLE-bench installation:
    either grades instead of ``metric``, in a process of its own. ``warnings`` go with every score.
    """

    id: str
    name: str
    description: str
    metric: str
    is_lower_better: bool
    public_dir: Path
    answers_path: Path
    sample_submission_path: Path
    rules: Rules
    source: Source
    constant_score: float | None = None
    strong_score: float | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    execution: ExecutionSettings = ExecutionSettings()
    board: Board | None = None
    grade_script: Path | None = None
    mlebench_python: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def id_column(self) -> str | None:
        """Name of the id column, None where rows are paired by position only."""
        return self.rules.id_column

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Names of the columns to predict."""
        return self.rules.target_columns
