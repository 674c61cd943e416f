"""A short nano run with milestones placed by a frozen model, and the same run without:
``python -m tests.benchmarks.instrumented --out DIR [--steps N] [--wave N] [--inserters none lm_lines]``.

Prints per run and step: mean number of milestones that programs printed, share of valid programs, seconds. And how far
instrumentation keeps programs waiting: the programs of a wave that ran while another one of it was at the instrumenter.
The model is SmolLM2-135M-Instruct. Runs that are there already are read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlrl_core.cache import cache_dir
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.models.smollm2 import prepare_smollm2
from mlrl_core.records import Experience
from tests.benchmarks.acceptance import is_finished, train


def waits(rows: Sequence[Experience]) -> dict[str, float]:
    """Seconds from a response to its place in the sandbox's queue (the instrumenter's, waiting for it included), and
    during how many of those some other program of the wave ran."""
    at_model = [(row.generated_at, row.queued_at, row.solution.solution_id) for row in rows if row.queued_at]
    running = [(row.started_at, row.finished_at, row.solution.solution_id) for row in rows if row.started_at]
    total = sum(end - begin for begin, end, _ in at_model)
    beside = sum(
        _covered(begin, end, [(a, b) for a, b, other in running if other != name]) for begin, end, name in at_model
    )
    return {"mean_s": round(total / max(1, len(at_model)), 2), "share_beside_runs": round(beside / max(1e-9, total), 2)}


def _covered(begin: float, end: float, intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds of [begin, end] that lie in any of the intervals."""
    covered, reached = 0.0, begin
    for start, stop in sorted(intervals):
        start, stop = max(start, reached), min(stop, end)
        if stop > start:
            covered += stop - start
            reached = stop
    return covered


def measure(run: Path) -> dict[str, Any]:
    """Per step of a finished run, by its experience store."""
    store = ExperienceStore(RunDirectory.open(run))
    waves = [store.read(wave) for wave in store.waves()]
    counted = [[row for row in rows if row.reward is not None] for rows in waves]
    return {
        "milestones_mean": [
            _mean([len(row.execution.milestones) if row.execution else 0 for row in c]) for c in counted
        ],
        "valid_share": [_mean([row.outcome == "graded" for row in rows]) for rows in counted],
        "fallbacks": sum(bool(row.program and row.program.fallback_reason) for rows in counted for row in rows),
        "programs": sum(row.program is not None for rows in counted for row in rows),
        "at_instrumenter": [waits(rows) for rows in waves],
        "run_mean_s": [_mean([row.execution.duration_s for row in rows if row.execution]) for rows in counted],
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--wave", type=int, default=16)
    parser.add_argument("--inserters", nargs="*", default=["none", "lm_lines"])
    arguments = parser.parse_args()
    model = prepare_smollm2(cache_dir() / "models", print)
    results: dict[str, Any] = {}
    for inserter in arguments.inserters:
        run = arguments.out / inserter
        keys = {
            "steps": arguments.steps,
            "wave_size": arguments.wave,
            "batch.size": arguments.wave,
            "instrument.inserter": inserter,
            "instrument.model": model,
        }
        wall_s = None if is_finished(run) else train(run, 0, [f"{key}={value}" for key, value in keys.items()])[0]
        results[inserter] = measure(run) | {"wall_s": wall_s and round(wall_s), "load": os.getloadavg()}
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
