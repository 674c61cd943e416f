"""One process, two processes and any split into micro-batches make the same update (FSDP2 over gloo)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mlrl_core.config import RunConfig, dump_toml
from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow, read_batch, write_batch
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.packing import share_of
from mlrl_core.learner.ranks import Ranks

MakeConfig = Callable[..., RunConfig]
MakeRows = Callable[..., list[BatchRow]]
COMPARED = ("actor/pg_loss", "actor/grad_norm", "critic/vf_loss", "critic/grad_norm", "actor/entropy", "actor/ref_kl")


def launch(folder: Path, ranks: int) -> None:
    """Run the group program with ``ranks`` processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "-m", "tests.mlrl_core.learner.group_program", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr[-3000:]


def alone(folder: Path, config: RunConfig, state: Path | None = None) -> tuple[list[dict[str, float]], Engine]:
    """The same updates in this process."""
    engine = Engine(folder / "backbone", config)
    if state is not None:
        engine.load(state)
    return [engine.update(read_batch(b)) for b in sorted((folder / "batches").glob("*.parquet"))], engine


def agree(left: list[dict[str, float]], right: list[dict[str, float]], relative: float) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        for key in COMPARED:
            assert one[key] == pytest.approx(other[key], rel=relative, abs=1e-7), key


@pytest.fixture
def folder(tmp_path: Path, backbone: Path) -> Path:
    (tmp_path / "backbone").symlink_to(backbone)
    return tmp_path


def saved(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def adapter(folder: Path) -> torch.Tensor:
    from safetensors.torch import load_file

    tensors = load_file(folder / "adapter_model.safetensors")
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def test_splits_and_ranks_agree_and_states_move_between_worlds(
    folder: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    """One launch, because it loads torch three times: 1x1, 1x4, 2x1 and 2x2, a state of one process that two go on
    with, and the other way round. The last batch has one response for two ranks.

    The first of the updates differs by rounding alone, the later ones by what Adam makes of rounding.
    """
    one_step = ("ppo.epochs=1", "ppo.minibatches=1")
    config = make_config(*one_step)
    small = make_config(*one_step, "ppo.micro_batch_tokens=18")
    for name, each in (("whole", config), ("small", small), ("resumed", config)):
        (folder / f"{name}.toml").write_text(dump_toml(each))
    for number, lengths in enumerate(([5, 1, 0, 12, 2, 7, 7], [9, 3, 3, 4], [6])):
        rows = make_rows(lengths, prompts=2 if number < 2 else 1, seed=number, version=number)
        write_batch(folder / "batches" / f"{number}.parquet", rows)
    expected, engine = alone(folder, config)
    engine.save(folder / "resumed.state")
    engine.export_adapter(folder / "alone.adapter")
    continued = [engine.update(read_batch(b)) for b in sorted((folder / "batches").glob("*.parquet"))]
    in_parts, _ = alone(folder, small)
    launch(folder, 2)
    for other in (in_parts, saved(folder, "whole-2"), saved(folder, "small-2")):
        agree(expected[:1], other[:1], 1e-5)
        agree(expected[1:], other[1:], 1e-3)
    agree(continued[:1], saved(folder, "resumed-2")[:1], 1e-5)
    agree(continued[1:], saved(folder, "resumed-2")[1:], 1e-3)
    difference = adapter(folder / "alone.adapter") - adapter(folder / "whole-2.adapter")
    assert difference.norm() < 1e-3 * adapter(folder / "alone.adapter").norm()

    from_two, _ = alone(folder, config, folder / "whole-2.state")
    agree(continued, from_two, 1e-3)


@pytest.mark.slow
def test_eight_ranks_agree_with_one(folder: Path, make_config: MakeConfig, make_rows: MakeRows) -> None:
    config = make_config("ppo.epochs=1", "ppo.minibatches=1")
    (folder / "whole.toml").write_text(dump_toml(config))
    write_batch(folder / "batches" / "0.parquet", make_rows([5, 1, 0, 12, 2, 7, 7, 3, 3, 8, 20, 4], prompts=3))
    launch(folder, 8)
    agree(alone(folder, config)[0], saved(folder, "whole-8"), 1e-5)


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_rows_are_dealt_once_and_evenly(make_rows: MakeRows, world: int) -> None:
    rows = make_rows([5, 1, 0, 12, 2, 7, 7, 30, 4, 4, 0, 9], prompts=3)
    shares = [share_of(rows, range(len(rows)), rank, world) for rank in range(world)]
    assert sorted(index for share in shares for index in share) == list(range(len(rows)))
    tokens = [sum(len(rows[i].response_ids) for i in share) for share in shares]
    assert max(tokens) <= sum(tokens) / world + 30
    assert torch.tensor(tokens).sum() == 81
    assert share_of(make_rows([0, 0]), [0, 1], 1, 2) == []


def test_gpus_that_are_not_there_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MlrlError, match="PyTorch sees no GPU"):
        Ranks.join("cuda", 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(MlrlError, match=r"learner\.ranks = 4, but PyTorch sees 2 GPUs"):
        Ranks.join("cuda", 1)
