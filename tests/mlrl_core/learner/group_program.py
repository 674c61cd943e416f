"""What the ranks of a test group run (torchrun): updates in several splits, and a state saved for another world."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from mlrl_core.config import load_run_config
from mlrl_core.learner.batch_file import read_batch
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.ranks import Ranks


def main(folder: Path) -> None:
    """For every ``<name>.toml`` in ``folder``: the metrics of updating with all batches, into ``<name>-<world>.json``;
    each saves its state as ``<name>-<world>.state``. ``<name>.state`` is loaded first where it exists."""
    torch.set_num_threads(1)
    ranks = Ranks.join("cpu", timeout_s=60)
    for path in sorted(folder.glob("*.toml")):
        engine = Engine(folder / "backbone", load_run_config(path), ranks)
        if (folder / f"{path.stem}.state").exists():
            engine.load(folder / f"{path.stem}.state")
        batches = sorted((folder / "batches").glob("*.parquet"))
        metrics = [engine.update(read_batch(batch)) for batch in batches]
        engine.save(folder / f"{path.stem}-{ranks.world}.state")
        engine.export_adapter(folder / f"{path.stem}-{ranks.world}.adapter")
        ranks.barrier()
        if not ranks.rank:
            (folder / f"{path.stem}-{ranks.world}.json").write_text(json.dumps(metrics))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
