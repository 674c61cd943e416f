"""Where the evaluation of a version lies: a run directory of its own below the run's, with waves but no steps."""

from __future__ import annotations

import json

from mlrl_core.config import RunConfig
from mlrl_core.config.learning import BatchConfig
from mlrl_core.errors import MlrlError
from mlrl_core.experience import RunDirectory
from mlrl_core.experience.files import publish_text
from mlrl_core.tracking import tracking_uri

MARK = "evaluation.json"  # in a run directory that holds an evaluation
SOLVE_WAVE, IMPROVE_WAVE = 1, 2


def evaluation_of(run: RunDirectory, version: int, solutions: int) -> RunDirectory:
    """Where the evaluation of a version lies: made, or found to go on with.

    Raises MlrlError where the version isn't there, or was evaluated with another number of solutions.
    """
    published = run.published_versions()
    if version not in published:
        there = f"{published[0]} to {published[-1]}" if published else "none yet"
        raise MlrlError(f"{run.path} has no version {version} (versions: {there})")
    path = run.path / "evaluation" / f"{version:05d}"
    if not (path / "config.toml").exists():
        made = RunDirectory.create(path, _config(run, solutions))
        publish_text(made.path / MARK, json.dumps({"run": str(run.path), "version": version}))
        return made
    found = RunDirectory.open(path)
    if found.load_config().wave_size != solutions:
        raise MlrlError(
            f"{path} is an evaluation with {found.load_config().wave_size} solutions: ask for as many, or move it away"
        )
    return found


def _config(run: RunDirectory, solutions: int) -> RunConfig:
    """The run's own configuration, as far as it is not about learning."""
    trained = run.load_config()
    changes: dict[str, object] = {
        "steps": IMPROVE_WAVE,
        "wave_size": solutions,
        "batch": BatchConfig(size=solutions),
        "improve": trained.improve.model_copy(update={"episode": "independent"}),  # a wave each for both kinds
    }
    if trained.tracking.enabled:  # its numbers belong beside the run's
        uri = tracking_uri(trained.tracking, run.path)
        changes["tracking"] = trained.tracking.model_copy(update={"uri": uri})
    return RunConfig.model_validate(trained.model_copy(update=changes).model_dump())
