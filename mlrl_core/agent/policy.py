"""The folder of the frozen backbone that a run starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.cache import cache_dir
from mlrl_core.config import RunConfig
from mlrl_core.models.folder import context_of

if TYPE_CHECKING:
    from mlrl_core.competitions import Competition

Progress = Callable[[str], None]


def prepare_policy(config: RunConfig, competition: Competition, progress: Progress) -> Path:
    """The backbone's folder (model and tokenizer, loadable by transformers), built, downloaded or warm-started when
    missing.

    Raises MlrlError when ``policy.model`` is neither ``nano``, ``smollm2``, a folder with a causal language model, nor
    a model that the hub gives, or its context is too short; InfraError when a package can't be fetched.
    """
    if config.policy.model == "nano":
        from mlrl_core.nano.prepare import prepare_nano

        folder = prepare_nano(config, competition, competition.public_dir, cache_dir() / "nano", progress)
        context_of(config, folder)
        return folder
    base = _base(config.policy.model, progress)
    context_of(config, base)
    if not config.warmstart.demonstrations:
        return base
    from mlrl_core.models.warmstart import prepare_warmstart

    return prepare_warmstart(base, config, competition, competition.public_dir, cache_dir() / "warmstart", progress)


def _base(name: str, progress: Progress) -> Path:
    """The folder of a model as it is published."""
    if name == "smollm2":
        from mlrl_core.models.smollm2 import prepare_smollm2

        return prepare_smollm2(cache_dir() / "models", progress)
    from mlrl_core.models.folder import check_model_folder, fetch_model

    folder = Path(name).expanduser()
    if not folder.is_dir():
        progress(f"policy: fetching {name}")
        folder = fetch_model(name)
    check_model_folder(name, folder, progress)
    return folder.resolve()


def check_policy(config: RunConfig) -> str:
    """Where the model would come from, in words, without fetching or loading weights.

    Raises MlrlError when it can't be had without the network, or is no causal language model.
    """
    name = config.policy.model
    if name == "nano":
        from mlrl_core.nano.shipped import shipped_dir

        context_of(config, shipped_dir())
        return "nano, built here"
    if name == "smollm2":
        from mlrl_core.models.smollm2 import check_smollm2

        return check_smollm2(config, cache_dir() / "models")
    from mlrl_core.models.folder import check_model_folder, find_fetched

    folder = Path(name).expanduser()
    folder = folder if folder.is_dir() else find_fetched(name)
    check_model_folder(name, folder, lambda text: None)
    context_of(config, folder)
    size_gb = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e9
    return f"{name}, {size_gb:.1f} GB in {folder}"
