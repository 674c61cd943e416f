"""The log of launches: every solution that was launched, also those that no batch ever admitted.

Inclusion probabilities need the start of every launch and the cut it was measured against, so this log is written
as things happen and never rewritten. One JSON object a line; a repeated event (after a resume) replaces the earlier.
"""

from __future__ import annotations

import json
import time
from typing import Literal

from mlrl_core.experience.files import append_line
from mlrl_core.experience.run_directory import RunDirectory, wave_of

LaunchEvent = Literal["launched", "started", "ended"]


def log_launch(
    run: RunDirectory, solution_id: str, event: LaunchEvent, at: float | None = None, outcome: str | None = None
) -> None:
    """Append one event; ``at`` is in epoch seconds (now, if not given)."""
    entry = {"solution_id": solution_id, "event": event, "at": time.time() if at is None else at}
    if outcome is not None:
        entry["outcome"] = outcome
    append_line(run.launches(wave_of(solution_id)), json.dumps(entry))


def read_launches(run: RunDirectory, wave: int) -> dict[str, dict[str, float]]:
    """Per solution id the time of each of its events, the latest of each kind."""
    path = run.launches(wave)
    times: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the writer was killed within this line
        times.setdefault(entry["solution_id"], {})[entry["event"]] = float(entry["at"])
    return times
