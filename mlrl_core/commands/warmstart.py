"""``mlrl warmstart``: make the policy that a run starts from, without starting a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mlrl_core.config import load_config


def warmstart(profile: str, competition: str | None, overrides: Sequence[str], ship: bool, as_json: bool) -> None:
    """Prepare the competition and the policy of ``profile`` and say where it lies.

    With ``ship`` the policy becomes the one that the package carries. Raises MlrlError for a configuration that has no
    such policy.
    """
    from mlrl_core.agent import prepare_policy
    from mlrl_core.competitions import default_data_dir, prepare_competition

    console = Console(stderr=True)
    chosen = [f"competition.id={competition}"] if competition else []
    config = load_config(profile, [*chosen, *overrides])
    data_dir = Path(config.competition.data_dir) if config.competition.data_dir else default_data_dir()
    prepared = prepare_competition(config.competition.id, data_dir)
    with console.status("policy") as status:
        folder = prepare_policy(config, prepared, status.update)
    if ship:
        from mlrl_core.nano.shipped import ship as ship_policy

        ship_policy(folder)
    if as_json:
        print(json.dumps({"backbone": str(folder)}))
        return
    console.print(f"policy: {folder}")
    console.print(f"next: mlrl train --profile {profile} --competition {config.competition.id}")
