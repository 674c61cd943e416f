"""A model folder of the user's, or one that the hub gives: found, and checked before anything loads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError

_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def fetch_model(name: str) -> Path:
    """The folder of a model of the hub, downloaded when it is not in the hub's cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:  # the hub's client raises a score of unrelated types
        reason = str(error).split("\n", 1)[0]
        raise MlrlError(
            f"policy.model = {name}: no such folder, and the hub does not give it ({type(error).__name__}: {reason})"
        ) from None


def find_fetched(name: str) -> Path:
    """The folder of a model of the hub that was downloaded before. Raises MlrlError when it was not."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=True))
    except Exception:  # the hub's client raises a score of unrelated types
        raise MlrlError(
            f"policy.model = {name}: neither a folder nor in the hub's cache; fetch it with `hf download {name}`, "
            "or set policy.model to a folder"
        ) from None


def check_model_folder(name: str, folder: Path, progress: Callable[[str], None]) -> None:
    """Raise MlrlError unless ``folder`` holds a causal language model with weights and a tokenizer.

    A model without a chat template can be trained; ``progress`` is told what its prompts then are.
    """
    from transformers import AutoConfig, AutoTokenizer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    if not (folder / "config.json").is_file():
        raise MlrlError(f"policy.model = {name}: the folder holds no config.json, so it is no model of transformers")
    try:
        settings = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise MlrlError(f"policy.model = {name}: transformers can't read its config.json ({_first(error)})") from None
    if type(settings) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise MlrlError(f"policy.model = {name}: a {settings.model_type} model is no causal language model")
    if not any(folder.glob("*.safetensors")):
        raise MlrlError(f"policy.model = {name}: the folder holds no weights (*.safetensors)")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers and tokenizers raise many types for a folder without one
        raise MlrlError(
            f"policy.model = {name}: the folder holds no tokenizer that can be read ({_first(error)})"
        ) from None
    if tokenizer.eos_token_id is None:
        raise MlrlError(f"policy.model = {name}: its tokenizer names no end token, so no response would ever end")
    if not tokenizer.chat_template:
        progress(f"policy: {name} has no chat template, so its prompts are plain text")


def context_of(config: RunConfig, folder: Path) -> int | None:
    """Tokens that the model's context holds, None where it does not say. Raises MlrlError where a prompt and its
    response don't fit."""
    try:
        limit = json.loads((folder / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError) as error:
        raise MlrlError(f"{folder}: no model of transformers ({error})") from None
    if limit is None:
        return None
    check_context(config, int(limit))
    return int(limit)


def check_context(config: RunConfig, limit: int) -> None:
    """Raises MlrlError where a prompt and its response don't fit into ``limit`` tokens."""
    least = config.prompt.max_tokens + config.sampling.max_new_tokens
    if least > limit:
        raise MlrlError(
            f"prompt.max_tokens + sampling.max_new_tokens = {least}, but the model's context is {limit} tokens: "
            "lower one of them"
        )


def _first(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0]
