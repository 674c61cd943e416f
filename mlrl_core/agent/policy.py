"""The folder of the frozen backbone that a run starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.config import RunConfig
from mlrl_core.config.places import cache_dir
from mlrl_core.errors import MlrlError

if TYPE_CHECKING:
    from mlrl_core.competitions import Competition


def prepare_policy(config: RunConfig, competition: Competition, progress: Callable[[str], None]) -> Path:
    """The backbone's folder (model and tokenizer, loadable by transformers), built or downloaded when missing.

    Raises MlrlError when ``policy.model`` is neither ``nano``, a model folder, nor a model that the hub gives.
    """
    name = config.policy.model
    if name == "nano":
        from mlrl_core.nano.prepare import prepare_nano

        return prepare_nano(config, competition, competition.public_dir, cache_dir() / "nano", progress)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise MlrlError(
                f"policy.model = {name}: the folder holds no config.json, so it is no model of transformers"
            )
        return folder.resolve()
    from huggingface_hub import snapshot_download

    progress(f"policy: fetching {name}")
    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]))
    except Exception as error:  # the hub's client raises a score of unrelated types
        reason = str(error).split("\n", 1)[0]
        raise MlrlError(
            f"policy.model = {name}: no such folder, and the hub does not give it ({type(error).__name__}: {reason})"
        ) from None
