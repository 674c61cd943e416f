"""What is to be solved: competitions, their data on disk, and the grader.

``prepare_competition`` writes a built-in competition in MLE-bench's layout, ``load_competition`` finds one that
lies there (built-in, prepared by MLE-bench, or a user's own folder), ``grade`` scores a submission and
``grade_in_child`` does the same in a separate process with a deadline. Importing this package is cheap: numpy is
loaded at the first grade.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.competitions.competition import Baseline, Competition, ExecutionSettings
from mlrl_core.competitions.execution import with_execution_settings
from mlrl_core.competitions.score_map import check_map, map_score
from mlrl_core.competitions.store import (
    default_data_dir,
    list_competitions,
    load_competition,
    open_competition,
    open_competitions,
    prepare_competition,
)

if TYPE_CHECKING:
    from mlrl_core.competitions.parts import Part
    from mlrl_core.records import Score

__all__ = [
    "Baseline",
    "Competition",
    "ExecutionSettings",
    "check_map",
    "default_data_dir",
    "grade",
    "grade_in_child",
    "label_files",
    "list_competitions",
    "load_competition",
    "map_score",
    "open_competition",
    "open_competitions",
    "prepare_competition",
    "with_execution_settings",
]


def grade(competition: Competition, submission: Path, part: Part = "all") -> Score:
    """The score of ``submission`` in this process: see ``grading.grade``."""
    from mlrl_core.competitions import grading

    return grading.grade(competition, submission, part)


def grade_in_child(competition: Competition, submission: Path, deadline_s: float = 300, part: Part = "all") -> Score:
    """The score of ``submission``, computed by a child process: see ``worker.grade_in_child``."""
    from mlrl_core.competitions import worker

    return worker.grade_in_child(competition, submission, deadline_s, part)


def label_files() -> list[Path]:
    """Installed files that hold labels of built-in competitions: see ``labels.label_files``."""
    from mlrl_core.competitions import labels

    return labels.label_files()
