"""``mlrl doctor``: what would stop a training run on this machine, found before it starts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from mlrl_core.commands.hardware import check_gpus, find_gpus, propose_slots
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sizing import needs_of, shape_of

if TYPE_CHECKING:
    from mlrl_core.config import RunConfig

_PACKAGES = ("prefect", "mlflow", "torch", "transformers", "peft", "polars", "scikit-learn", "docker")
_FREE_GB = 5.0


def doctor(profile: str, overrides: Sequence[str], as_json: bool) -> bool:
    """Run every check, print what was found, and return whether all passed. Raises MlrlError for a configuration that
    is none."""
    from mlrl_core.config import load_config

    config = load_config(profile, overrides)
    checks: dict[str, Callable[[RunConfig], str]] = {
        "packages": _packages,
        "processors and memory": _machine,
        "gpus": _gpus,
        "model": _model,
        "generation": _generation,
        "space": _space,
        "competition": _competition,
        "sandbox": _sandbox,
        "prefect": _prefect,
        "mlflow": _mlflow,
    }
    found: list[dict[str, object]] = []
    for name, check in checks.items():
        try:
            found.append({"check": name, "ok": True, "detail": check(config)})
        except (MlrlError, InfraError) as error:
            found.append({"check": name, "ok": False, "detail": str(error)})
    healthy = all(each["ok"] for each in found)
    if as_json:
        sys.stdout.write(json.dumps({"ok": healthy, "checks": found}) + "\n")
        return healthy
    console = Console()
    table = Table(box=None, show_header=False)
    for each in found:
        mark = "[green]ok[/green]" if each["ok"] else "[red]no[/red]"
        table.add_row(mark, str(each["check"]), str(each["detail"]).replace("[", r"\["))
    console.print(table)
    command = shlex.join(
        ["mlrl", "train", "--profile", profile, *(part for each in overrides for part in ("--set", each))]
    )
    console.print(
        f"next: {command}" if healthy else "mend what says no, then run `mlrl doctor` again",
        markup=False,
        soft_wrap=True,
    )
    return healthy


def _packages(config: RunConfig) -> str:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            raise MlrlError(f"{name} is not installed: install this project with `pip install .`") from None
    return f"python {sys.version.split()[0]}, " + ", ".join(versions)


def _machine(config: RunConfig) -> str:
    import psutil

    from mlrl_core.sandbox.host import slot_count

    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory()
    fitting = propose_slots(config, cores, memory.total / 2**20)
    try:
        slots = slot_count(config.sandbox.slots, config.sandbox.cpus, config.sandbox.memory_mb << 20)
    except MlrlError as error:
        raise MlrlError(f"{error}; for {cores} cores and this memory sandbox.slots={fitting}") from None
    shape = shape_of(config)
    if config.learner.device == "cpu" and shape:
        learner_gb = config.learner.ranks * needs_of(config, shape).learner
        if learner_gb > memory.total / 2**30:
            raise MlrlError(
                f"a learner on the CPU needs about {learner_gb:.0f} GB, this machine has {memory.total / 2**30:.0f}: "
                "set learner.device=cuda, learner.gradient_checkpointing=true or a smaller ppo.micro_batch_tokens"
            )
    free_gb, total_gb = memory.available / 2**30, memory.total / 2**30
    found = f"{cores} cores, {free_gb:.1f} of {total_gb:.1f} GB free, execution slots: {slots}"
    if slots > fitting:
        found += f"; sandbox.slots={fitting} would leave room for learner and servers"
    return found


def _gpus(config: RunConfig) -> str:
    return check_gpus(config, find_gpus())


def _model(config: RunConfig) -> str:
    from mlrl_core.agent.policy import check_policy

    return check_policy(config)


def _generation(config: RunConfig) -> str:
    if config.generation.backend != "vllm":
        return "in this process"
    from mlrl_core.generation.vllm.environment import VERSION, find_python
    from mlrl_core.generation.vllm.server import check_servers

    check_servers(config)
    servers = config.generation.servers or ("cpu",)
    own = [each for each in servers if not each.startswith("http")]
    if not own:
        return f"vLLM {VERSION} at {', '.join(servers)}"
    started = " ".join(config.generation.command) or find_python(config.generation.python)
    return f"vLLM {VERSION} on {', '.join(servers)}, started by {started}"


def _space(config: RunConfig) -> str:
    place = Path.cwd()
    if not os.access(place, os.W_OK):
        raise MlrlError(f"{place} can't be written: train from a writable folder or give --run")
    free_gb = shutil.disk_usage(place).free / 2**30
    shape = shape_of(config)
    wanted_gb = _FREE_GB + (needs_of(config, shape).disk if shape else 0)
    if free_gb < wanted_gb:
        raise MlrlError(
            f"{place}: {free_gb:.1f} GB free, versions of {config.steps} steps and stores want {wanted_gb:.0f}"
        )
    return f"{free_gb:.0f} GB free in {place}"


def _competition(config: RunConfig) -> str:
    from mlrl_core.competitions import check_map, open_competitions

    competitions = open_competitions(config.competition)
    for each in competitions:
        check_map(each, config.reward.reward_map)
    return "; ".join(f"{each.id} ({each.metric}) in {each.public_dir.parent.parent}" for each in competitions)


def _sandbox(config: RunConfig) -> str:
    from mlrl_core.competitions import label_files
    from mlrl_core.sandbox import open_sandbox

    sandbox = open_sandbox(config.sandbox, run_key="doctor", masked_files=label_files())
    try:
        return sandbox.description + (" (UNSAFE: programs can read what you can)" if sandbox.unsafe else "")
    finally:
        sandbox.close()


def _prefect(config: RunConfig) -> str:
    from flows.server import check_configured_api, configured_api

    check_configured_api()
    return f"server at {configured_api()}" if configured_api() else "no server configured: each run starts its own"


def _mlflow(config: RunConfig) -> str:
    from mlrl_core.tracking import tracking_uri

    if not config.tracking.enabled:
        return "tracking is off"
    return tracking_uri(config.tracking, Path("runs").absolute() / "a-run")
