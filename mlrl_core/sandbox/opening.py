"""Chooses a backend and proves that it works before anything is run in it."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox import Sandbox

_CANARY = """{imports}
import os
assert open("input/canary.csv").read() == "id\\n1\\n"
open("submission.csv", "w").write("id\\n1\\n")
print("alive", os.getuid())
"""


def open_backend(
    config: SandboxConfig, *, run_key: str, masked_files: Sequence[Path], env: Mapping[str, str]
) -> Sandbox:
    """See ``open_sandbox``."""
    if config.backend == "docker":
        return _docker(config, run_key, env)
    if config.backend == "bubblewrap":
        return _bubblewrap(config, masked_files, env)
    if config.backend == "process":
        return _process(config, env)
    reasons: list[str] = []
    for name, start in (
        ("docker", lambda: _docker(config, run_key, env)),
        ("bubblewrap", lambda: _bubblewrap(config, masked_files, env)),
    ):
        try:
            sandbox = start()
        except (MlrlError, InfraError) as error:
            reasons.append(f"{name}: {error}")
            continue
        sandbox.description += f" (auto; {'; '.join(reasons)})" if reasons else " (auto)"
        return sandbox
    if not config.allow_unsafe_process:
        raise MlrlError(
            f"no sandbox works here ({'; '.join(reasons)}): mend one, or for toy runs set "
            "sandbox.allow_unsafe_process=true"
        )
    sandbox = _process(config, env)
    sandbox.description += f" (auto; {'; '.join(reasons)})"
    return sandbox


def _docker(config: SandboxConfig, run_key: str, env: Mapping[str, str]) -> Sandbox:
    from mlrl_core.sandbox.docker_backend import DockerSandbox

    return _proved(DockerSandbox(config, run_key, env))


def _bubblewrap(config: SandboxConfig, masked_files: Sequence[Path], env: Mapping[str, str]) -> Sandbox:
    from mlrl_core.sandbox.bubblewrap import BubblewrapSandbox

    return _proved(BubblewrapSandbox(config, masked_files, env))


def _process(config: SandboxConfig, env: Mapping[str, str]) -> Sandbox:
    from mlrl_core.sandbox.process import ProcessSandbox

    return _proved(ProcessSandbox(config, env))


def _proved(sandbox: Sandbox) -> Sandbox:
    """The sandbox after a canary ran in it. Raises MlrlError with what went wrong."""
    imports = "import numpy" if importlib.util.find_spec("numpy") else ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            inputs = Path(folder) / "in"
            inputs.mkdir()
            (inputs / "canary.csv").write_text("id\n1\n")
            result = sandbox.run(_CANARY.format(imports=imports), inputs, collect_to=Path(folder) / "submission.csv")
        if result.status != "ok" or result.submission_state != "ok":
            lines = result.stderr.tail.strip().splitlines() or [f"submission {result.submission_state}"]
            raise MlrlError(f"{sandbox.backend} does not work here: a canary ended as {result.status}, {lines[-1]}")
    except InfraError as error:
        sandbox.close()
        raise MlrlError(f"{sandbox.backend} does not work here: {error}") from None
    except BaseException:
        sandbox.close()
        raise
    return sandbox
