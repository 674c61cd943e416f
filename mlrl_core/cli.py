"""The ``mlrl`` command: thin. Every command says what is wrong in one line (exit 2) and what to do next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mlrl_core.errors import InfraError, MlrlError

EXIT_MISTAKE = 2
EXIT_INFRA = 3

app = typer.Typer(
    help="Train a small language model by reinforcement learning to do machine learning engineering.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON document.")]


@app.command()
def train(
    profile: Annotated[str | None, typer.Option(help="Profile or .toml file; nano if not given.")] = None,
    competition: Annotated[str | None, typer.Option(help="Competition, instead of the profile's.")] = None,
    run: Annotated[Path | None, typer.Option(help="Directory of the new run; under runs/ if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Configuration, e.g. ppo.learning_rate=1e-4; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the configuration, start nothing.")
    ] = False,
) -> None:
    """Train, with a live display; Ctrl-C stops and says how to go on."""
    from mlrl_core.commands.train import train as run_train

    raise typer.Exit(run_train(profile, competition, run, resume, seed, overrides or (), dry_run))


@app.command()
def warmstart(
    profile: Annotated[str, typer.Option(help="Profile or .toml file.")] = "nano",
    competition: Annotated[str | None, typer.Option(help="Competition, instead of the profile's.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Configuration; repeatable.")] = None,
) -> None:
    """Make the policy that a run begins with (`mlrl train` does it too): built once, then found."""
    from mlrl_core.commands.train import warmstart as make

    make(profile, competition, overrides or ())


@app.command()
def runs(
    root: Annotated[Path, typer.Argument(help="Folder that holds runs.")] = Path("runs"), as_json: _Json = False
) -> None:
    """List runs, newest first."""
    from mlrl_core.commands.report import runs as list_runs

    list_runs(root, as_json)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Run directory.")], as_json: _Json = False) -> None:
    """Learning curve, first and best program, and a table, from the run directory alone."""
    from mlrl_core.commands.report import report as make_report

    make_report(run, as_json)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    version: Annotated[
        list[int] | None, typer.Option(help="Version; repeatable. The first and the newest if not given.")
    ] = None,
    solutions: Annotated[int, typer.Option(help="Fresh solutions of each version.")] = 64,
    as_json: _Json = False,
) -> None:
    """Sample, run and grade fresh solutions of versions of a run: on the answers that rewards never saw, where the
    run splits them (reward.report_split), else on all."""
    from mlrl_core.commands.evaluate import evaluate as run_evaluate

    raise typer.Exit(run_evaluate(run, version or (), solutions, as_json))


@app.command()
def doctor(
    profile: Annotated[str, typer.Option(help="Profile or .toml file to check this machine for.")] = "nano",
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Configuration; repeatable.")] = None,
    as_json: _Json = False,
) -> None:
    """Check that this machine can train: packages, sandbox, competition, stores, space."""
    from mlrl_core.commands.doctor import doctor as examine

    raise typer.Exit(0 if examine(profile, overrides or (), as_json) else 1)


def _mount() -> None:
    """The commands of the packages."""
    from mlrl_core.competitions.commands import app as competitions
    from mlrl_core.competitions.commands import grade
    from mlrl_core.sandbox.commands import app as sandbox

    app.add_typer(competitions, name="competitions")
    app.command()(grade)
    app.add_typer(sandbox, name="sandbox")


_mount()


def main() -> None:
    """Entry point: mistakes and infrastructure faults become one line and an exit code, never a traceback."""
    try:
        app()
    except MlrlError as error:
        _fail(error, EXIT_MISTAKE)
    except InfraError as error:
        _fail(error, EXIT_INFRA)


def _fail(error: Exception, code: int) -> None:
    sys.stderr.write(f"mlrl: {error}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
