"""The report of a run: curve, first valid and best program, and one table. From the run directory alone."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from mlrl_core.errors import MlrlError
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.files import publish_text
from mlrl_core.experience.statistics import StepStatistics, run_statistics
from mlrl_core.reporting.curve import draw_learning_curve
from mlrl_core.reporting.families import family_shares

ENDS = 3  # steps compared at either end, where there are that many


@dataclass(frozen=True, slots=True)
class End:
    """The first or the last steps of a run together. Durations in seconds; None where there is no valid program."""

    steps: tuple[int, ...]
    solutions: int
    valid_share: float
    reward_mean: float | None
    valid_reward_mean: float | None
    valid_reward_sem: float | None
    valid_duration_mean_s: float | None
    families: dict[str, float]  # of the valid programs


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has shown. Paths are files under ``<run>/report``; None where no program was valid."""

    run: str
    steps: list[StepStatistics]
    first: End
    last: End
    curve: Path
    first_program: Path | None
    best_program: Path | None
    diff: str


def write_report(run: RunDirectory, steps: Sequence[int] | None = None) -> Report:
    """Write ``<run>/report`` and return what it says. Raises MlrlError when no step has been made yet.

    ``steps``: the steps that count (all whose batch has been cut, if not given).
    """
    store = ExperienceStore(run)
    made = store.steps() if steps is None else list(steps)
    if not made:
        raise MlrlError(f"{run.path}: no wave has ended yet, there is nothing to report")
    statistics = run_statistics(store, made)
    columns = ["solution_id", "code", "outcome"]
    graded = [store.step_frame(step, columns).filter(pl.col("outcome") == "graded") for step in made]
    families = [family_shares(rows["code"]) for rows in graded]
    config = run.load_config()
    title = f"{run.key}: {config.competition.id}, profile {config.profile}, seed {config.seed}"
    curve = draw_learning_curve(statistics, families, title, run.report / "learning_curve.png")
    best = statistics[-1].best
    codes = dict(pl.concat(graded).select("solution_id", "code").iter_rows())
    first_id = min(codes) if codes else None
    first_path = _program(run, "first_valid.py", codes[first_id]) if first_id else None
    best_path = _program(run, "best.py", codes[best.solution_id]) if best else None
    diff = _diff(first_id, best.solution_id, codes) if first_id and best else ""
    ends = max(min(ENDS, len(made) // 2), 1)  # the two never overlap, unless there is one step
    report = Report(
        run=str(run.path),
        steps=statistics,
        first=_end(store, made[:ends]),
        last=_end(store, made[-ends:]),
        curve=curve,
        first_program=first_path,
        best_program=best_path,
        diff=diff,
    )
    publish_text(run.report / "first_to_best.diff", diff)
    publish_text(run.report / "summary.json", json.dumps(as_json(report), indent=1))
    return report


def as_json(report: Report) -> dict[str, object]:
    """The report as JSON-ready values."""
    tree = dataclasses.asdict(report)
    return {key: str(value) if isinstance(value, Path) else value for key, value in tree.items()}


def _end(store: ExperienceStore, steps: Sequence[int]) -> End:
    columns = ["outcome", "reward_total", "execution_duration_s", "code"]
    parts = [store.step_frame(step, columns) for step in steps]
    rows = pl.concat(parts).filter(~pl.col("outcome").is_in(["infra_error", "cancelled"]))
    valid = rows.filter(pl.col("outcome") == "graded")
    rewards = valid["reward_total"].to_list()
    return End(
        steps=tuple(steps),
        solutions=rows.height,
        valid_share=valid.height / max(rows.height, 1),
        reward_mean=_mean(rows["reward_total"].to_list()),
        valid_reward_mean=_mean(rewards),
        valid_reward_sem=standard_error(rewards),
        valid_duration_mean_s=_mean(valid["execution_duration_s"].to_list()),
        families=family_shares(valid["code"]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean (sample variance); None below two values."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def _program(run: RunDirectory, name: str, code: str) -> Path:
    return publish_text(run.report / name, code)


def _diff(first_id: str, best_id: str, codes: dict[str, str]) -> str:
    before, after = codes[first_id].splitlines(), codes[best_id].splitlines()
    names = f"first valid program ({first_id})", f"best program ({best_id})"
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=50)) + "\n"
