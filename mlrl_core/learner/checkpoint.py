"""All that an engine must remember, saved with torch.distributed.checkpoint and keyed by names (learner.md 6).

Both adapters, the value head, both optimisers, counters and random states. A key that is missing, or one too many, is
an error on saving and on loading: an optimiser that silently starts afresh looks fine for one step.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

from mlrl_core.errors import MlrlError
from mlrl_core.learner.network import ADAPTERS

if TYPE_CHECKING:
    from mlrl_core.learner.engine import Engine

COUNTERS = ("version", "value_bias_set", "skipped_steps")


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Give AdamW the state that it would make at its first step, so that a checkpoint always has the same keys."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def save_state(engine: Engine, folder: Path) -> None:
    """Write the engine's state into ``folder``, which must not exist. All ranks call it and write their parts."""
    rank, world = engine.ranks.rank, engine.ranks.world
    if not rank:
        folder.mkdir(parents=True)
    engine.ranks.barrier()
    with _quiet():
        dcp.save(_tensors(engine), checkpoint_id=folder / "tensors", no_dist=world == 1)
    (folder / f"rng-{rank:05d}.json").write_text(json.dumps(_random_states()))
    if not rank:
        counters = {name: getattr(engine, name) for name in COUNTERS}
        run = {"seed": engine.config.seed, "world_size": world}
        (folder / "engine.json").write_text(json.dumps(counters | run, indent=2))


def load_state(engine: Engine, folder: Path) -> None:
    """Put the state in ``folder`` into a fresh engine of the same shape, on any number of ranks.

    On another number of ranks than it was saved from, random states don't fit: they start from (seed, version, rank).

    Raises MlrlError for a state that is incomplete or belongs to another configuration of adapters.
    """
    wanted = _tensors(engine)
    try:
        stored = dcp.FileSystemReader(folder / "tensors").read_metadata().state_dict_metadata
        counters = json.loads((folder / "engine.json").read_text())
    except (OSError, ValueError, RuntimeError) as error:
        raise MlrlError(f"{folder}: no state to train on ({error}); use a version that has kept its state") from None
    if missing := wanted.keys() - stored.keys():
        raise MlrlError(f"{folder}: the state lacks {len(missing)} tensors, for example {min(missing)}")
    if extra := stored.keys() - wanted.keys():
        raise MlrlError(f"{folder}: the state has {len(extra)} unknown tensors, for example {min(extra)}")
    for name, tensor in wanted.items():
        if (size := getattr(stored[name], "size", None)) != tensor.shape:
            raise MlrlError(f"{folder}: {name} is {size}, this configuration has {tuple(tensor.shape)} (policy.lora?)")
    with _quiet():
        dcp.load(wanted, checkpoint_id=folder / "tensors", no_dist=engine.ranks.world == 1)
    for name in COUNTERS:
        setattr(engine, name, counters[name])
    if counters["world_size"] == engine.ranks.world:
        _set_random_states(json.loads((folder / f"rng-{engine.ranks.rank:05d}.json").read_text()))
    else:
        print(f"{folder}: saved from {counters['world_size']} ranks, now {engine.ranks.world}: new random states")
        torch.manual_seed(engine.seed_for(f"rank {engine.ranks.rank}"))


def _tensors(engine: Engine) -> dict[str, Tensor]:
    network = engine.network
    tensors: dict[str, Tensor] = {f"model/{name}": p.detach() for name, p in network.trainable().items()}
    for role, optimizer in engine.optimizers.items():
        for name, parameter in network.trainable(role).items():
            for key, value in optimizer.state[parameter].items():
                tensors[f"optimizer/{role}/{name}/{key}"] = value
    names = {name for name, _ in network.named_parameters() if ".lora_" in name or name.startswith("value_head.")}
    roles = {role: sum(f".{role}." in name for name in names) for role in ADAPTERS}
    parameters = sum(key.startswith("model/") for key in tensors)
    if parameters != len(names) or len(set(roles.values())) != 1 or len(tensors) != 4 * parameters:
        raise RuntimeError(f"the state would be incomplete: {len(names)} parameters, {roles}, {len(tensors)} tensors")
    return tensors


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _random_states() -> dict[str, Any]:
    import numpy as np

    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": torch.get_rng_state().tolist(),
    }


def _set_random_states(states: dict[str, Any]) -> None:
    import numpy as np

    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
