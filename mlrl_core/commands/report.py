"""``mlrl report`` and ``mlrl runs``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from mlrl_core.errors import MlrlError

if TYPE_CHECKING:
    from mlrl_core.reporting.report import End, Report

_FAMILIES = 3


def report(run_dir: Path, as_json: bool) -> None:
    """Write the report of a run and show it."""
    from mlrl_core.experience import RunDirectory
    from mlrl_core.reporting.report import as_json as plain
    from mlrl_core.reporting.report import write_report

    made = write_report(RunDirectory.open(run_dir))
    if as_json:
        sys.stdout.write(json.dumps(plain(made)) + "\n")
    else:
        show(Console(), made)


def show(console: Console, made: Report) -> None:
    """The diff, the table and the files of a report."""
    if made.diff.strip():
        console.print(Syntax(made.diff, "diff", background_color="default", word_wrap=True))
    table = Table(title=f"what {len(made.steps)} steps did", title_justify="left")
    table.add_column("")
    for end in (made.first, made.last):
        table.add_column(f"steps {end.steps[0]} to {end.steps[-1]}", justify="right")
    for label, values in _rows(made):
        table.add_row(label, *values)
    console.print(table)
    best = made.steps[-1].best
    if best is not None:
        console.print(f"best program: {best.solution_id}, score {best.raw:.5g}: {made.best_program}", soft_wrap=True)
    console.print(f"learning curve: {made.curve}", soft_wrap=True)


def _rows(made: Report) -> list[tuple[str, list[str]]]:
    from mlrl_core.reporting.live import number, seconds

    def both(format_end: object) -> list[str]:
        assert callable(format_end)
        return [format_end(made.first), format_end(made.last)]

    def valid_reward(end: End) -> str:
        spread = f" ± {end.valid_reward_sem:.3f}" if end.valid_reward_sem is not None else ""
        return number(end.valid_reward_mean, 3) + spread

    rows = [
        ("programs", both(lambda end: str(end.solutions))),
        ("with a valid submission", both(lambda end: f"{end.valid_share:.0%}")),
        ("mean reward", both(lambda end: number(end.reward_mean))),
        ("mean reward of valid programs", both(valid_reward)),
        ("mean duration of valid programs", both(lambda end: seconds(end.valid_duration_mean_s))),
    ]
    shown = [*made.last.families, *made.first.families]
    for family in list(dict.fromkeys(shown))[:_FAMILIES]:
        rows.append((f"  {family}", both(lambda end, name=family: f"{end.families.get(name, 0.0):.0%}")))
    return rows


def runs(root: Path, as_json: bool) -> None:
    """The runs in a folder, newest first."""
    from mlrl_core.experience import ExperienceStore, RunDirectory
    from mlrl_core.experience.state import read_state
    from mlrl_core.experience.statistics import run_statistics

    found: list[dict[str, Any]] = []
    for path in sorted(root.glob("*/config.toml"), key=lambda p: -p.stat().st_mtime):
        run = RunDirectory(path.parent.absolute())
        try:
            config, state = run.load_config(), read_state(run)
            done = max(run.published_versions(), default=0)
            statistics = run_statistics(ExperienceStore(run), range(1, done + 1))
        except MlrlError as error:  # the others are listed all the same
            found.append({"run": str(run.path), "status": "damaged", "problem": str(error)})
            continue
        status = state.status if state.status != "running" or run.is_owned() else "stopped"
        last = statistics[-1] if statistics else None
        found.append(
            {
                "run": str(run.path),
                "status": status,
                "competition": config.competition.id,
                "profile": config.profile,
                "seed": config.seed,
                "step": done,
                "steps": config.steps,
                "valid_share": last.valid_share if last else None,
                "best_score": last.best.raw if last and last.best else None,
                "wall_s": state.wall_s,
            }
        )
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    console = Console()
    if not found:
        console.print(f"no runs in {root.absolute()}: start one by `mlrl train`", markup=False)
        return
    table = Table(box=None)
    for title in ("run", "status", "step", "valid", "best score"):
        table.add_column(title, overflow="fold")
    for each in found:
        if each["status"] == "damaged":
            table.add_row(Path(str(each["run"])).name, "damaged", "-", "-", "-")
            continue
        valid, best = each["valid_share"], each["best_score"]
        table.add_row(
            Path(str(each["run"])).name,
            str(each["status"]),
            f"{each['step']}/{each['steps']}",
            "-" if valid is None else f"{valid:.0%}",
            "-" if best is None else f"{best:.4f}",
        )
    console.print(table)
    for each in found:
        if each["status"] == "damaged":
            console.print(each["problem"], markup=False, soft_wrap=True)
    stopped = [each["run"] for each in found if each["status"] in ("stopped", "interrupted")]
    if stopped:
        console.print(f"go on by: mlrl train --resume {stopped[0]}", markup=False, soft_wrap=True)
