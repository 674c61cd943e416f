"""Proves at start, in the real backend, that the defences work; refuses to start when one does not.

A host can lack a defence without saying so (no swap accounting, a rootless engine without limits, a kernel without
seccomp). A backend that passed is remembered until the next boot, together with all that the proof depends on.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import mlrl_core.sandbox as package
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import MlrlError
from mlrl_core.sandbox import Sandbox, programs
from mlrl_core.sandbox.canaries import Canary, canaries
from mlrl_core.sandbox.host import runtime_dir

log = logging.getLogger(__name__)

SMALL = {
    "memory_mb": 256,
    "pids": 64,
    "nofile": 256,
    "out_mb": 16,
    "tmp_mb": 16,
    "shm_mb": 16,
    "output_limit_mb": 4,
    "slots": 1,
    "cpus": 1.0,
}


def preflight(config: SandboxConfig, start: Callable[[SandboxConfig], Sandbox], identity: str) -> list[str]:
    """Run the canaries unless this very backend passed since the last boot. Returns one line per check.

    ``start`` makes the backend with a configuration; ``identity`` names what the proof depends on (engine, image,
    bwrap). Raises MlrlError that names the defence that failed.
    """
    record = runtime_dir() / "preflight" / _key(config, identity)
    if record.exists():
        return ["passed before, since the last boot"]
    lines = run_canaries(start, config)
    record.parent.mkdir(mode=0o700, exist_ok=True)
    record.write_text("\n".join(lines) + "\n")
    return lines


def run_canaries(start: Callable[[SandboxConfig], Sandbox], config: SandboxConfig) -> list[str]:
    """Run all canaries in sandboxes like the one ``config`` names, with small limits. Raises MlrlError."""
    lines: list[str] = []
    token = secrets.token_hex(16)
    variable = "MLRL_PREFLIGHT_SECRET"
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as listener:
        folder = Path(name)
        (folder / "inputs").mkdir()
        secret = folder / "secret"
        secret.write_text(token)
        os.environ[variable] = token
        try:
            for limit_s, group in itertools.groupby(
                canaries(port=listener.getsockname()[1], secret=str(secret), token=token[::-1]),
                key=lambda canary: canary.limit_s,
            ):
                sandbox = start(config.model_copy(update={**SMALL, "time_limit_s": limit_s}))
                try:
                    lines += [_held(sandbox, canary, folder) for canary in group]
                finally:
                    sandbox.close()
        finally:
            os.environ.pop(variable, None)
    return lines


def _held(sandbox: Sandbox, canary: Canary, folder: Path) -> str:
    names = [*programs.environment("", 1, {}), "LC_CTYPE", "HOSTNAME", *sandbox.extra_env]
    source = canary.source.replace("KNOWN_NAMES", repr(names))
    result = sandbox.run(source, folder / "inputs", collect_to=folder / "submission.csv")
    if problem := canary.verdict(result):
        raise MlrlError(f"{sandbox.backend} is not safe here: {canary.name} {problem}")
    log.info("sandbox preflight, %s: %s held", sandbox.backend, canary.name)
    return f"{canary.name}: held"


def _key(config: SandboxConfig, identity: str) -> str:
    """Boot, code of this package, backend, and what the limits are made of."""
    digest = hashlib.sha256()
    digest.update(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    for path in sorted(Path(package.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    digest.update(f"{identity}:{config.runtime}:{config.engine_url}:{os.geteuid()}".encode())
    return digest.hexdigest()[:32]
