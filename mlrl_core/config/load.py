"""Profiles, overrides, and errors that name the right key."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from mlrl_core.config.root import RunConfig
from mlrl_core.errors import MlrlError


def profile_names() -> list[str]:
    """Names of the shipped profiles, plus ``default`` (the class defaults)."""
    files = resources.files("mlrl_core.config").joinpath("profiles").iterdir()
    return sorted({"default", *(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))})


def load_config(profile: str, overrides: Iterable[str] = (), seed: int | None = None) -> RunConfig:
    """The configuration of ``profile`` with ``key=value`` overrides (dotted keys, TOML values or plain text).

    Raises MlrlError with one line for an unknown profile, key or value.
    """
    tree: dict[str, Any] = {} if profile == "default" else _read_profile(profile)
    tree["profile"] = profile
    if seed is not None:
        tree["seed"] = seed
    for item in overrides:
        _apply_override(tree, item)
    return _validate(tree)


def load_run_config(path: Path) -> RunConfig:
    """The resolved configuration of an existing run (``<run>/config.toml``)."""
    try:
        return _validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MlrlError(f"{path}: can't be read as a run's configuration ({error})") from None


def dump_toml(config: RunConfig) -> str:
    """The resolved configuration as TOML; ``load_run_config`` gives an equal object back."""
    lines: list[str] = []
    tables: list[tuple[str, Mapping[str, Any]]] = [("", config.model_dump())]
    while tables:
        prefix, table = tables.pop(0)
        if prefix:
            lines.append(f"\n[{prefix}]")
        nested: list[tuple[str, Mapping[str, Any]]] = []
        for key, value in table.items():
            if isinstance(value, Mapping):
                nested.append((f"{prefix}.{key}" if prefix else key, value))
            else:
                lines.append(f"{key} = {_toml_value(value)}")
        tables = nested + tables
    return "\n".join(lines) + "\n"


def config_digest(config: RunConfig) -> str:
    """SHA-256 of the resolved configuration, 16 hex digits."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _toml_value(value: Any) -> str:
    # JSON strings, numbers, booleans and arrays of them are valid TOML.
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _read_profile(profile: str) -> dict[str, Any]:
    source: Any = Path(profile) if profile.endswith(".toml") else None
    if source is None:
        source = resources.files("mlrl_core.config").joinpath("profiles", f"{profile}.toml")
    if not source.is_file():
        known = profile_names()
        near = difflib.get_close_matches(profile, known, n=1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise MlrlError(f"unknown profile '{profile}'{hint} (profiles: {', '.join(known)}; or a .toml file)")
    try:
        return tomllib.loads(source.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MlrlError(f"{profile}: not valid TOML ({error})") from None


def _apply_override(tree: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    if not equals or not key.strip():
        raise MlrlError(f"--set {item}: write it as key=value, for example --set ppo.learning_rate=1e-4")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # plain words need no quotes
    *parents, leaf = key.strip().split(".")
    node = tree
    for parent in parents:
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            raise MlrlError(f"--set {item}: '{parent}' is a value, not a section")
    node[leaf] = value


def _validate(tree: dict[str, Any]) -> RunConfig:
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise MlrlError(_one_line(error)) from None


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        keys = _all_keys(RunConfig)
        same_leaf = [key for key in keys if key.split(".")[-1] == location.split(".")[-1]]
        near = difflib.get_close_matches(location, keys, n=1, cutoff=0.5)
        best = next(iter(same_leaf or near), None)
        return f"unknown configuration key '{location}'" + (f", did you mean '{best}'?" if best else "")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "tuple_type":  # quotes are lost in a shell, and what is left is text
        message = f"it is a list; in a shell write it as '{location}=[\"...\"]', quotes included"
    return f"configuration: {location + ': ' if location else ''}{message}"


def _all_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += [f"{prefix}{name}", *_all_keys(kind, f"{prefix}{name}.")]
        else:
            keys.append(f"{prefix}{name}")
    return keys
