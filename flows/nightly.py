"""The scheduled entry: one run a night, gone on with if the night before was cut off."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from flows.train import train
from mlrl_core.experience import RunDirectory
from mlrl_core.experience.state import read_state


def _name() -> str:
    return f"nightly {flow_run.parameters['competition'] or flow_run.parameters['profile']}"


@flow(name="nightly", flow_run_name=_name, persist_result=False)
def nightly(
    profile: str = "nano", competition: str = "", overrides: Sequence[str] = (), runs_dir: str = "runs", seed: int = 0
) -> None:
    """Go on with the newest unfinished nightly run in ``runs_dir``, else start a new one named by the UTC date.

    A run that failed is gone on with once more; where it fails every night the failing flow runs say so.
    """
    root = Path(runs_dir).absolute()
    unfinished = _newest_unfinished(root)
    run_dir = unfinished or root / f"nightly-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    train(profile=profile, competition=competition, seed=seed, overrides=list(overrides), run_dir=str(run_dir))


def _newest_unfinished(root: Path) -> Path | None:
    for path in sorted(root.glob("nightly-*"), reverse=True):
        if not (path / "config.toml").exists() or not os.access(path, os.W_OK):
            continue
        # Only the newest counts: an older unfinished one was given up when a later one was started.
        return None if read_state(RunDirectory.open(path)).status == "finished" else path
    return None
