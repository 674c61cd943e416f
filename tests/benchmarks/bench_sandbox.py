"""What the sandbox costs: ``python -m tests.benchmarks.bench_sandbox [--backend B] [--engine URL] [--runs N]``.

Prints medians: wall minus duration of an empty program, one at a time; and of a CPU-bound program with eight at once,
pinned four to a core, duration / (CPU seconds x 4). Results are kept in docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.sandbox import Sandbox, open_sandbox

BUSY = "import time\nx = 0\nwhile time.process_time() < 2: x += 1\n"


def overhead(sandbox: Sandbox, inputs: Path, runs: int) -> list[float]:
    """Seconds of wall time beside the program's own, for an empty program."""
    found = []
    for number in range(runs + 1):
        began = time.monotonic()
        result = sandbox.run("pass", inputs, collect_to=inputs.parent / "submission.csv")
        if number:  # the first one starts the helper
            found.append(time.monotonic() - began - result.duration_s)
        time.sleep(0.05)
    return found


def side_by_side(sandbox: Sandbox, inputs: Path, rounds: int) -> list[float]:
    """duration / (CPU seconds x 4) of every program, eight at once on two cores."""
    found = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(rounds):
            runs = [
                pool.submit(sandbox.run, BUSY, inputs, collect_to=inputs.parent / f"{number}.csv")
                for number in range(8)
            ]
            for run in runs:
                result = run.result()
                assert result.status == "ok", result
                assert result.cpu_s
                found.append(result.duration_s / (result.cpu_s * 4))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="bubblewrap")
    parser.add_argument("--engine", default="")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    common = {"backend": options.backend, "engine_url": options.engine, "memory_mb": 256, "time_limit_s": 60}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "public"
        inputs.mkdir(mode=0o755)
        sandbox = open_sandbox(SandboxConfig(**common, slots=1), run_key="bench")
        alone = overhead(sandbox, inputs, options.runs)
        sandbox.close()
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        sandbox = open_sandbox(SandboxConfig(**common, slots=8), run_key="bench")
        crowded = side_by_side(sandbox, inputs, 5)
        sandbox.close()
    print(
        json.dumps(
            {
                "backend": sandbox.description,
                "overhead_ms_median": round(1000 * statistics.median(alone), 1),
                "overhead_ms_max": round(1000 * max(alone), 1),
                "eight_at_once_ratio_median": round(statistics.median(crowded), 3),
                "load": os.getloadavg(),
            }
        )
    )


if __name__ == "__main__":
    main()
