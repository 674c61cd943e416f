"""Chooses a backend and proves that it works and holds before anything is run in it."""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox import Sandbox
from mlrl_core.sandbox.preflight import preflight, run_canaries
from mlrl_core.sandbox.sweep import Swept, sweep_engine, sweep_host

log = logging.getLogger(__name__)

_CANARY = """{imports}
assert open("input/canary.csv").read() == "id\\n1\\n"
open("submission.csv", "w").write("id\\n1\\n")
"""
PROOF_S = 120.0
Start = Callable[[SandboxConfig], Sandbox]


def open_backend(
    config: SandboxConfig, *, run_key: str, masked_files: Sequence[Path], env: Mapping[str, str]
) -> Sandbox:
    """See ``open_sandbox``."""
    sweep_host(Swept())  # what a worker that was killed left behind
    starts = _starts(run_key, masked_files, env)
    if config.backend != "auto":
        return _proved(config, config.backend, starts[config.backend])
    reasons: list[str] = []
    for name in ("docker", "bubblewrap"):
        try:
            sandbox = _proved(config, name, starts[name])
        except MlrlError as error:
            reasons.append(f"{name}: {error}")
            continue
        sandbox.description += f" (auto; {'; '.join(reasons)})" if reasons else " (auto)"
        return sandbox
    if not config.allow_unsafe_process:
        raise MlrlError(
            f"no sandbox works here ({'; '.join(reasons)}): mend one, or for toy runs set "
            "sandbox.allow_unsafe_process=true"
        )
    sandbox = _proved(config, "process", starts["process"])
    sandbox.description += f" (auto; {'; '.join(reasons)})"
    return sandbox


def check_backend(config: SandboxConfig) -> tuple[str, list[str]]:
    """Run the preflight's canaries now, whatever passed before: (what was checked, one line per check).

    Raises MlrlError that names the first defence that failed.
    """
    sandbox = open_backend(config, run_key="sandbox-check", masked_files=(), env={})
    sandbox.close()
    if sandbox.unsafe:
        raise MlrlError(f"{sandbox.description}: there is nothing to check")
    return sandbox.description, run_canaries(_starts("sandbox-check", (), {})[sandbox.backend], config)


def _starts(run_key: str, masked_files: Sequence[Path], env: Mapping[str, str]) -> dict[str, Start]:
    def docker(config: SandboxConfig) -> Sandbox:
        from mlrl_core.sandbox.docker_backend import DockerSandbox

        sandbox = DockerSandbox(config, run_key, env)
        sweep_engine(sandbox.client, Swept())
        return sandbox

    def bubblewrap(config: SandboxConfig) -> Sandbox:
        from mlrl_core.sandbox.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(config, masked_files, env)

    def process(config: SandboxConfig) -> Sandbox:
        from mlrl_core.sandbox.process import ProcessSandbox

        return ProcessSandbox(config, env)

    return {"docker": docker, "bubblewrap": bubblewrap, "process": process}


def _proved(config: SandboxConfig, name: str, start: Start) -> Sandbox:
    """The backend after an ordinary program ran in it and, for those that contain, the preflight passed.

    Raises MlrlError with what went wrong.
    """
    if name == "process":
        log.warning(
            "UNSAFE sandbox: programs run as plain processes of this user and can read, write and reach all that "
            "this user can. Install bubblewrap or docker."
        )
    try:
        # With patience: a busy machine, or a disk that reads the packages for the first time, is no broken one.
        sandbox = start(config.model_copy(update={"time_limit_s": max(config.time_limit_s, PROOF_S)}))
        try:
            _run_ordinary_program(sandbox)
        finally:
            sandbox.close()
        if not sandbox.unsafe:
            preflight(config, start, sandbox.description)
        return start(config)
    except InfraError as error:
        raise MlrlError(f"{name} does not work here: {error}") from None


def _run_ordinary_program(sandbox: Sandbox) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "in"
        inputs.mkdir()
        (inputs / "canary.csv").write_text("id\n1\n")
        source = _CANARY.format(imports="import numpy" if _has_numpy() else "")
        result = sandbox.run(source, inputs, collect_to=Path(folder) / "submission.csv")
    if result.status != "ok" or result.submission_state != "ok":
        words = result.stderr.tail.strip().splitlines() or [f"submission {result.submission_state}"]
        raise MlrlError(f"{sandbox.backend} does not work here: a first program ended as {result.status}, {words[-1]}")


def _has_numpy() -> bool:
    """Whether the environment itself holds numpy (a path that only this process added does not count)."""
    found = importlib.util.find_spec("numpy")
    origin = Path(found.origin) if found and found.origin else None
    return origin is not None and any(origin.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
