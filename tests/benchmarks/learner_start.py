"""What a learner costs beside its updates: ``python -m tests.benchmarks.learner_start [--repeats N]``.

The nano policy, 32 responses of 20 to 150 tokens to one prompt of 100. A worker is killed while it idles; timed is the
next update with the restart that it needs. Then the same worker makes another update: timed is the call from outside
minus reading, training and publishing inside. Prints medians and maxima as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path

from mlrl_core.agent.policy import prepare_policy
from mlrl_core.competitions import open_competition
from mlrl_core.config import load_config
from mlrl_core.learner.batch_file import BatchRow, write_batch
from mlrl_core.learner.client import LearnerClient


def rows_of(seed: int, version: int) -> list[BatchRow]:
    rng = random.Random(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(10, 200) for _ in range(count))

    prompt = ids(100)
    rows = []
    for number in range(32):
        response = ids(rng.randrange(20, 150))
        rows.append(
            BatchRow(
                f"{seed}-{number}",
                "diamonds",
                prompt,
                response,
                tuple(-rng.random() * 3 for _ in response),
                rng.random(),
                1.0,
                1.0,
                version,
                "graded",
                "stop",
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    config = load_config("nano", ["learner.mismatch_limit=1e9"])  # the log-probabilities here are made up
    backbone = prepare_policy(config, open_competition(config.competition), print)
    restarts: list[float] = []
    overheads: list[float] = []
    updates: list[float] = []
    with tempfile.TemporaryDirectory() as folder, LearnerClient(Path(folder) / "run", config, backbone) as client:
        version = 0
        for _ in range(repeats):
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            client._starts.clear()  # more deaths than a run may have
            time.sleep(0.5)
            for found in (restarts, overheads):
                path = Path(folder) / f"{version}.parquet"
                digest = write_batch(path, rows_of(version, version))
                began = time.monotonic()
                if found is restarts:
                    client.start()
                result = client.update(version + 1, path, digest, version)
                total = time.monotonic() - began
                found.append(total if found is restarts else result.timings["call_s"] - result.timings["total_s"])
                if found is overheads:
                    updates.append(total)
                version += 1
    print(
        json.dumps(
            {
                "restart_to_update_s": [round(statistics.median(restarts), 2), round(max(restarts), 2)],
                "call_overhead_s": [round(statistics.median(overheads), 4), round(max(overheads), 4)],
                "update_s": round(statistics.median(updates), 2),
                "load": os.getloadavg(),
            }
        )
    )


if __name__ == "__main__":
    main()
