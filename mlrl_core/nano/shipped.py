"""The warm-started policy that ships with the package: half-precision weights, under ten megabytes."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

_WEIGHTS = "model.safetensors"


def shipped_dir() -> Path:
    """The folder in the package; it holds a model folder of transformers with float16 weights."""
    return Path(str(resources.files("mlrl_core.nano").joinpath("weights")))


def unpack_shipped(recipe: str, target: Path) -> bool:
    """Copy the shipped policy into ``target`` with float32 weights if it was made by ``recipe``; else do nothing."""
    source = shipped_dir()
    facts = source / "warmstart.json"
    if not facts.is_file() or json.loads(facts.read_text())["recipe"] != recipe:
        return False
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target, dirs_exist_ok=True)
    weights = {name: tensor.float() for name, tensor in load_file(source / _WEIGHTS).items()}
    save_file(weights, target / _WEIGHTS, metadata={"format": "pt"})
    return True


def ship(built: Path) -> None:
    """Replace the shipped policy by the one in ``built`` (a folder that ``prepare_nano`` made)."""
    from safetensors.torch import load_file, save_file

    target = shipped_dir()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(built, target, ignore=shutil.ignore_patterns("DONE"))
    weights = {name: tensor.half() for name, tensor in load_file(built / _WEIGHTS).items()}
    save_file(weights, target / _WEIGHTS, metadata={"format": "pt"})
