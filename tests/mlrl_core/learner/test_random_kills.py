"""SIGKILL of one process of the worker, of the client, or of both, at any moment: no update lost, none repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlrl_core.config import RunConfig, dump_toml
from mlrl_core.learner.batch_file import BatchRow, read_batch, write_batch
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.versions import VersionStore

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]
KILLS = 20
UPDATES = 400
RECYCLE = 7  # updates after which a worker is replaced anyway


class Client:
    """The update program as a child, and the pids of its latest worker."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mlrl_core.learner.update_program", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        self.workers: list[int] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("#"):
                self.workers = [int(pid) for pid in line.split()]

    def kill_worker(self, rng: random.Random) -> None:
        """One of the worker's processes, whichever it is."""
        if self.workers:
            try:
                os.kill(rng.choice(sorted(self.workers)), signal.SIGKILL)
            except ProcessLookupError:
                return  # it is between two workers

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


def published(store: VersionStore) -> int:
    return len(list(store.root.glob("[0-9]*/DONE")))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [1, 2])
def test_random_kills_lose_and_repeat_nothing(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows, tmp_path: Path, ranks: int
) -> None:
    rng = random.Random(0)
    (tmp_path / "backbone").symlink_to(backbone)
    group = (f"learner.ranks={ranks}", f"learner.max_updates_per_process={RECYCLE}")
    config = make_config("ppo.epochs=1", "ppo.minibatches=1", *group)
    (tmp_path / "config.toml").write_text(dump_toml(config))
    digests: list[str | None] = [None]
    for number in range(1, UPDATES + 1):
        rows = make_rows([4, 3, 6], seed=number, version=number - 1)
        digests.append(write_batch(tmp_path / "batches" / f"{number:05d}.parquet", rows))
    store = VersionStore(tmp_path / "run")
    client = Client(tmp_path)
    try:
        for _ in range(KILLS):
            before = published(store)
            give_up = time.monotonic() + 120
            while published(store) == before and time.monotonic() < give_up:
                time.sleep(0.05)  # until it works again
            time.sleep(rng.random())
            what = rng.choice(["worker", "client", "both"])
            if what != "client":
                client.kill_worker(rng)
            if what != "worker":
                client.kill()
                client = Client(tmp_path)
        assert published(store) > KILLS
    finally:
        client.kill()
    time.sleep(1)  # its worker sees the end of its stdin
    chain = store.chain()
    assert [m.batch_id for m in chain] == [None, *map(str, range(1, len(chain)))]
    assert [m.batch_digest for m in chain] == digests[: len(chain)]
    assert {m.world_size for m in chain} == {ranks}
    if ranks > 1:
        return  # the sums of a group differ from those of one process in the last digits

    undisturbed = Engine(backbone, config)
    for manifest in chain[1:]:
        undisturbed.update(read_batch(tmp_path / "batches" / f"{manifest.version:05d}.parquet"))
    undisturbed.export_adapter(tmp_path / "expected")
    actual = store.path(chain[-1].version) / "adapter" / "adapter_model.safetensors"
    assert actual.read_bytes() == (tmp_path / "expected" / "adapter_model.safetensors").read_bytes()
