"""What Prefect, the run directory and tracking cost per solution, above the same number of bare Prefect task runs.

    python -m tests.benchmarks.orchestration [--solutions 1000] [--wave 32]

Everything that works (policy, sandbox, grader, learner) is a stand-in that takes no time. Both sides use the same
temporary server and a fresh database, and draining the client's events counts on both sides.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solutions", type=int, default=1000)
    parser.add_argument("--wave", type=int, default=32)
    options = parser.parse_args()
    steps = max(options.solutions // options.wave, 1)
    folder = Path(tempfile.mkdtemp(prefix="mlrl-orchestration-"))
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    os.environ.pop("PREFECT_API_URL", None)
    bare_s = _bare(folder, options.wave, steps)
    full_s = _full(folder, options.wave, steps)
    n = steps * options.wave
    print(f"{n} solutions in {steps} waves: bare task runs {bare_s:.1f} s, train {full_s:.1f} s")
    print(f"orchestration above bare task runs: {1000 * (full_s - bare_s) / n:.1f} ms per solution (bar: 25)")
    return 0


def _bare(folder: Path, wave: int, steps: int) -> float:
    """As many task runs as a run has (four a solution), in as many sub-flows."""
    from flows.logs import quiet
    from flows.server import prefect_api

    with prefect_api(folder / "server.log"), quiet(folder / "bare.log"):
        from prefect import flow, task
        from prefect.task_runners import ThreadPoolTaskRunner

        @task(persist_result=False)
        def nothing(i: int) -> int:
            return i

        @flow(task_runner=ThreadPoolTaskRunner(max_workers=wave))  # type: ignore[arg-type]
        def one_wave() -> None:
            for future in [nothing.submit(i) for i in range(4 * wave)]:
                future.result()

        @flow
        def bare() -> None:
            for _ in range(steps):
                one_wave()

        began = time.monotonic()
        bare()
        _drained()
    return time.monotonic() - began


def _full(folder: Path, wave: int, steps: int) -> float:
    from flows.logs import quiet
    from flows.server import prefect_api

    with prefect_api(folder / "server.log") as url, quiet(folder / "full.log"):
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from flows.train import train
        from mlrl_core.tracking import open_tracker
        from tasks.resources import registered
        from tests.fakes import fake_resources
        from tests.flows.conftest import make_run

        overrides = [f"wave_size={wave}", f"batch.size={wave}", f"steps={steps}", "tracking.enabled=true"]
        run = make_run(folder / "run", *overrides)
        config = run.load_config()
        began = time.monotonic()
        tracker = open_tracker(config.tracking, run.path, {}, {"run_path": str(run.path)})
        with temporary_settings({PREFECT_API_URL: url}), registered(fake_resources(run, tracker=tracker)):
            train(run_dir=str(run.path))
            _drained()
    return time.monotonic() - began


def _drained() -> None:
    from flows.server import drain

    drain(limit_s=600)


if __name__ == "__main__":
    sys.exit(main())
