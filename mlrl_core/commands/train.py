"""``mlrl train``: check everything first, then start, watch, and show what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mlrl_core.errors import MlrlError

if TYPE_CHECKING:
    from mlrl_core.competitions import Competition
    from mlrl_core.config import RunConfig
    from mlrl_core.experience import RunDirectory

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def train(
    profile: str | None,
    competition: str | None,
    run_dir: Path | None,
    resume: Path | None,
    seed: int | None,
    overrides: Sequence[str],
    dry_run: bool,
) -> int:
    """The exit code: 0 finished, 1 failed, 130 interrupted. Raises MlrlError before anything is written."""
    from mlrl_core.competitions import with_execution_settings
    from mlrl_core.config import dump_toml
    from mlrl_core.evaluation.directory import MARK
    from mlrl_core.experience import RunDirectory
    from mlrl_core.experience.state import read_state

    console = Console()
    if resume is not None:
        given = {"--profile": profile, "--competition": competition, "--run": run_dir, "--seed": seed}
        extra = [name for name, value in given.items() if value is not None] + (["--set"] if overrides else [])
        if extra:
            raise MlrlError(f"--resume goes on with the run as it was configured: leave out {', '.join(extra)}")
        run = RunDirectory.open(resume)
        if (run.path / MARK).exists():
            raise MlrlError(f"{run.path} is an evaluation, nothing to train: `mlrl evaluate` goes on with it")
        if read_state(run).status == "finished":
            _say(f"{run.path} is finished, there is nothing to go on with; its report: mlrl report {run.path}")
            return 0
        config = run.load_config()
        _check(config, run.path)
    else:
        config = plan(profile or "nano", competition, seed, overrides)
        path = (run_dir or default_run_dir(config)).absolute()
        RunDirectory.check_new(path)
        config = with_execution_settings(config, _check(config, path))
        if dry_run:
            sys.stdout.write(f"# would train in {path}\n{dump_toml(config)}")
            return 0
        run = RunDirectory.create(path, config)
    if dry_run:
        sys.stdout.write(f"# would go on in {run.path}\n{dump_toml(config)}")
        return 0
    return _run(console, run, config)


def plan(profile: str, competition: str | None, seed: int | None, overrides: Sequence[str]) -> RunConfig:
    """The resolved configuration of a new run."""
    from mlrl_core.config import load_config

    chosen = [f"competition.id={competition}"] if competition else []
    return load_config(profile, [*chosen, *overrides], seed)


def warmstart(profile: str, competition: str | None, overrides: Sequence[str]) -> None:
    """Prepare the competition and version 0's backbone, and say where it lies."""
    from mlrl_core.agent import prepare_policy
    from mlrl_core.competitions import open_competition
    from mlrl_core.reporting.live import display

    config = plan(profile, competition, None, overrides)
    console = Console()
    with display(console, config.steps) as listener:
        backbone = prepare_policy(config, open_competition(config.competition), listener.progress)
    console.print(f"policy: {backbone}\nnext: mlrl train --profile {profile}", markup=False, soft_wrap=True)


def default_run_dir(config: RunConfig) -> Path:
    """``runs/diamonds-nano-0-1129-2231``."""
    return Path("runs") / f"{config.competition.id}-{config.profile}-{config.seed}-{datetime.now():%m%d-%H%M%S}"


def _check(config: RunConfig, path: Path) -> list[Competition]:
    """Mistakes that can be known now: an unknown competition, or one that rewards can't be made for; a store or a
    Prefect server that can't be used.

    Returns the run's competitions.
    """
    from flows.server import check_configured_api
    from mlrl_core.competitions import check_map, open_competitions
    from mlrl_core.generation.vllm.server import check_servers
    from mlrl_core.tracking import tracking_uri

    competitions = open_competitions(config.competition)  # prepares a built-in one: seconds, once
    for competition in competitions:
        check_map(competition, config.reward.reward_map)
    if config.tracking.enabled:
        tracking_uri(config.tracking, path)
    check_configured_api()
    check_servers(config)
    return competitions


def _run(console: Console, run: RunDirectory, config: RunConfig) -> int:
    from flows.server import prefect_api
    from mlrl_core.reporting.live import display

    console.print(
        f"training {config.competition.id}, profile {config.profile}, seed {config.seed}, {config.steps} steps of "
        f"{config.wave_size} programs\nrun directory: {run.path}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    try:
        with display(console, config.steps) as listener:
            listener.note("starting Prefect")
            with prefect_api(run.path / "prefect-server.log") as api:
                state = _train(run, listener)
    except KeyboardInterrupt:
        state = None
    if state is not None and state.is_completed():
        finish(console, run, config, api, str(state.state_details.flow_run_id))
        return 0
    if state is None or state.is_cancelled():
        _say(f"interrupted; go on by: mlrl train --resume {run.path}")
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)  # Prefect's exit handlers would wait for a server that is gone
    error = state.result(raise_on_failure=False)
    if isinstance(error, MlrlError):
        raise error
    lines = str(error).splitlines() or [type(error).__name__]
    _say(f"failed: {lines[0]}\nlog: {run.log_path}; after mending, go on by: mlrl train --resume {run.path}")
    return EXIT_FAILED


def _train(run: RunDirectory, listener: Any) -> Any:
    from flows.logs import quiet

    with quiet(run.log_path):
        from flows.train import train as flow
        from tasks.resources import listening

        with listening(str(run.path), listener):
            return flow(run_dir=str(run.path), return_state=True)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def finish(console: Console, run: RunDirectory, config: RunConfig, api: str, flow_run_id: str) -> None:
    """What there is to look at."""
    from flows.server import configured_api
    from mlrl_core.commands.report import show
    from mlrl_core.reporting.report import write_report
    from mlrl_core.tracking import tracking_uri

    show(console, write_report(run))
    if configured_api():
        prefect = f"open {api.removesuffix('/api')}/runs/flow-run/{flow_run_id}"
    else:
        prefect = f"prefect server start   then open http://127.0.0.1:4200/runs/flow-run/{flow_run_id}"
    console.print("\nLook at this run:", markup=False)
    if config.tracking.enabled:
        uri = tracking_uri(config.tracking, run.path)
        mlflow = f"open {uri}" if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"
        console.print(
            f"  {mlflow}   (experiment {config.tracking.experiment}, run {run.key})", markup=False, soft_wrap=True
        )
    console.print(f"  {prefect}", markup=False, soft_wrap=True)
    console.print(f"  mlrl report {run.path}", markup=False, soft_wrap=True)
