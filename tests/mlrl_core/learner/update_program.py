"""A client that makes all updates of a run, one after the other, repeating what fails: what a killed flow would do."""

from __future__ import annotations

import sys
from pathlib import Path

from mlrl_core.config import load_run_config
from mlrl_core.errors import InfraError
from mlrl_core.learner.batch_file import batch_digest, read_batch
from mlrl_core.learner.client import LearnerClient
from mlrl_core.learner.versions import VersionStore


def main(folder: Path) -> None:
    """Update with ``folder/batches/<n>.parquet`` for n = 1, 2, ... until all are published. Prints the pids of the
    worker's processes, those of a group after that of its launcher."""
    batches = sorted((folder / "batches").glob("*.parquet"))
    client = LearnerClient(folder / "run", load_run_config(folder / "config.toml"), folder / "backbone")
    try:
        while len(done := VersionStore(folder / "run").chain()) <= len(batches):
            number = max(len(done), 1)
            path = batches[number - 1]
            try:
                client.start()
                print(*{client.pid, *(rank.pid for rank in client.processes())}, flush=True)
                client.update(number, path, batch_digest(read_batch(path)), number - 1)
            except InfraError as error:
                print("#", repr(str(error)), flush=True)  # one line, however many the error has
                client._starts.clear()  # this test kills more often than a run may fail
    finally:
        client.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
