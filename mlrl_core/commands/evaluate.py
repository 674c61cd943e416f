"""``mlrl evaluate``: fresh solutions of some versions of a run, side by side."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from mlrl_core.commands.train import EXIT_FAILED, EXIT_INTERRUPTED
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.evaluation.summary import BEST_OF, Attempt, Mean, Summary, standard_errors, summarise

if TYPE_CHECKING:
    from mlrl_core.experience import RunDirectory

_KINDS = {"solve": "solve", "improve": "improve", "better": "better of both"}


def evaluate(run_dir: Path, versions: Sequence[int], solutions: int, as_json: bool) -> int:
    """The exit code: 0 finished, 1 failed, 130 interrupted. No version: the first and the newest.

    Raises MlrlError before anything is sampled.
    """
    from flows.server import check_configured_api, prefect_api
    from mlrl_core.evaluation.directory import evaluation_of
    from mlrl_core.experience import RunDirectory
    from mlrl_core.reporting.live import display

    run = RunDirectory.open(run_dir)
    published = run.published_versions()
    if not published:
        raise MlrlError(f"{run.path} has no version yet: there is nothing to evaluate")
    if solutions < 1:
        raise MlrlError(f"--solutions {solutions}: at least one")
    chosen = sorted(set(versions or (published[0], published[-1])))
    check_configured_api()
    folders = {version: evaluation_of(run, version, solutions) for version in chosen}
    console = Console(stderr=as_json)
    try:
        with display(console, len(chosen)) as listener, prefect_api(run.path / "prefect-server.log"):
            states = [_run(run, version, solutions, listener) for version in chosen]
    except KeyboardInterrupt:
        states = [None]
    for state in states:
        if state is None or state.is_cancelled():
            sys.stderr.write("interrupted; the same command goes on\n")
            sys.stdout.flush()
            os._exit(EXIT_INTERRUPTED)  # Prefect's exit handlers would wait for a server that is gone
        if not state.is_completed():
            error = state.result(raise_on_failure=False)
            if isinstance(error, MlrlError | InfraError):
                raise error
            sys.stderr.write(f"failed: {str(error).splitlines()[0]}\nlog: {run.path / 'evaluate.log'}\n")
            return EXIT_FAILED
    summaries = [_summaries(folder, version) for version, folder in folders.items()]
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for version in summaries for each in version]) + "\n")
    else:
        show(console, summaries)
    return 0


def _run(run: RunDirectory, version: int, solutions: int, listener: Any) -> Any:
    from flows.logs import quiet

    with quiet(run.path / "evaluate.log"):
        from flows.evaluate import evaluate as flow
        from tasks.resources import listening

        listener.note(f"version {version}: {solutions} solutions")
        with listening(str(run.path), listener):
            return flow(run_dir=str(run.path), version=version, solutions=solutions, return_state=True)


def _summaries(folder: RunDirectory, version: int) -> list[Summary]:
    from mlrl_core.competitions import map_score, open_competitions
    from mlrl_core.evaluation.summary import COLUMNS
    from mlrl_core.experience import ExperienceStore

    config = folder.load_config()
    arenas = {each.id: each for each in open_competitions(config.competition)}
    rows = ExperienceStore(folder).frame(None, COLUMNS)
    rule = config.reward
    return summarise(version, rows, lambda name, raw: map_score(arenas[name], raw, rule.reward_map, rule.map_power))


def show(console: Console, versions: Sequence[Sequence[Summary]]) -> None:
    """A table, a column per version; the last column says how sure the last one's gain over the first one is. With
    several competitions one table of all and one of each. ``versions``: what ``summarise`` found of each."""
    names = list(dict.fromkeys(each.competition_id for summaries in versions for each in summaries))
    for name in names:
        found = [each for summaries in versions for each in summaries if each.competition_id == name]
        _show(console, found, "all competitions" if name is None else name)


def _show(console: Console, summaries: Sequence[Summary], title: str) -> None:
    table = Table(
        title=f"{title}: {summaries[0].solve.solutions} fresh solutions of each version", title_justify="left"
    )
    table.add_column("")
    for each in summaries:
        table.add_column(f"version {each.version}", justify="right")
    first, last = summaries[0], summaries[-1]
    rest = [""] if last is not first else []
    if rest:
        table.add_column("gain, standard errors", justify="right")
    for kind, what in _KINDS.items():
        for label, name, digits in (("valid share", "valid", 2), ("reward of valid", "reward", 3)):
            cells = [_part(each, kind, name) for each in summaries]
            if not any(cells):
                continue
            row = [f"{what}: {label}", *(_text(mean, digits) for mean in cells)]
            if rest:
                gain = standard_errors(cells[0], cells[-1])
                row.append("-" if gain is None else f"{gain:+.1f}")
            table.add_row(*row)
        bests = [attempt.best_of if (attempt := _attempt(each, kind)) else None for each in summaries]
        if any(best is not None for best in bests):
            cells_of_best = ["-" if best is None else f"{best:.3f}" for best in bests]
            table.add_row(f"{what}: best reward of {BEST_OF}, expected", *cells_of_best, *rest)
    if any(each.best_raw is not None for each in summaries):
        best = [f"{each.best_raw:.5g} ({each.best_id})" if each.best_raw is not None else "-" for each in summaries]
        table.add_row("best score", *best, *rest)
    console.print(table)


def _attempt(summary: Summary, kind: str) -> Attempt | None:
    found: Attempt | None = getattr(summary, kind)
    return found


def _part(summary: Summary, kind: str, name: str) -> Mean | None:
    attempt = _attempt(summary, kind)
    return None if attempt is None else getattr(attempt, name)


def _text(mean: Mean | None, digits: int) -> str:
    if mean is None:
        return "-"
    return f"{mean.mean:.{digits}f}" + (f" ± {mean.sem:.{digits}f}" if mean.sem is not None else "")
