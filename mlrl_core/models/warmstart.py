"""Warm start of a chat model: a LoRA adapter learns the grammar's demonstrations and is merged into the weights.

The adapter, the packed batches and the log-probabilities are the learner's own, so that version 0 has been through the
code that trains it further. The merged folder is the backbone of the run: version 0 has untouched adapters on it, and
reference, instrumenter and server all use it.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens, load_tokenizer
from mlrl_core.agent.prompts import PromptSource, solve_prompt
from mlrl_core.cache import made_once
from mlrl_core.config import RunConfig
from mlrl_core.config.load import dump_toml
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.learner.client import FIRM_MALLOC
from mlrl_core.models.fine_tuning import MISTAKE
from mlrl_core.models.smollm2 import file_digest
from mlrl_core.nano.facts import read_facts
from mlrl_core.nano.grammar import write_demonstration

Progress = Callable[[str], None]
_SILENCE_S = 900.0  # of the child: between two steps, or while it loads and saves
_END_S = 10.0


@dataclass(frozen=True)
class _Lesson:
    """What is learned, in the model's own tokens; ``responses`` end with the end token."""

    prompt_ids: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...]


def prepare_warmstart(
    base: Path, config: RunConfig, competition: PromptSource, public_dir: Path, cache_dir: Path, progress: Progress
) -> Path:
    """The folder of ``base`` after its warm start for ``competition``, made when missing.

    It is keyed by the base's weights, the demonstrations in its tokens, and every setting that turns one into the
    other. Raises MlrlError for a competition that the grammar has no words for, InfraError when its process fails.
    """
    weights = sorted(base.glob("*.safetensors"))
    if not weights:
        raise MlrlError(f"{base}: a warm start needs weights in safetensors files, and the folder holds none")
    lesson = _lesson(base, config, competition, public_dir)
    settings = config.warmstart.model_dump(exclude={"threads"})
    recipe = [
        [file_digest(path) for path in weights],
        lesson.prompt_ids,
        lesson.responses,
        settings,
        config.policy.lora.model_dump(),
        config.learner.autocast,
        config.policy.dtype,
    ]
    digest = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
    name = f"{competition.id}-{Path(config.policy.model).name}-{digest}"
    return made_once(cache_dir / name, lambda folder: _make(base, config, lesson, folder, progress))


def _lesson(base: Path, config: RunConfig, competition: PromptSource, public_dir: Path) -> _Lesson:
    facts = read_facts(competition.id, competition.metric, public_dir)
    tokenizer = load_tokenizer(base)
    header = (public_dir / "sample_submission.csv").read_text().split("\n", 1)[0].strip()
    prompt = solve_prompt(
        competition, header, config.sandbox, config.prompt.max_tokens, lambda text: count_tokens(tokenizer, text)
    )
    rng = Random(config.warmstart.seed)
    texts = [write_demonstration(facts, rng).response for _ in range(config.warmstart.demonstrations)]
    responses = tuple((*tokenizer(text)["input_ids"], tokenizer.eos_token_id) for text in texts)
    return _Lesson(chat_prompt_ids(tokenizer, prompt), responses)


def _make(base: Path, config: RunConfig, lesson: _Lesson, folder: Path, progress: Progress) -> None:
    """In a child process: what it takes, gigabytes, is given back, and torch's threads are its own."""
    with tempfile.TemporaryDirectory(prefix="warmstart-") as place:
        job = Path(place)
        (job / "config.toml").write_text(dump_toml(config))
        (job / "lesson.json").write_text(json.dumps([lesson.prompt_ids, lesson.responses]))
        with (job / "log").open("w+b") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mlrl_core.models.fine_tuning", str(job), str(base.absolute()), str(folder)],
                stdin=subprocess.PIPE,  # its end tells the child of ours
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **FIRM_MALLOC, "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"},
                start_new_session=True,
            )
            try:
                status = _follow(process, progress)
            finally:
                process.kill()
                process.wait(_END_S)
                for pipe in (process.stdin, process.stdout):
                    assert pipe is not None
                    pipe.close()
        if status:
            said = (job / "log").read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            if status == MISTAKE:
                raise MlrlError(said[-1])
            raise InfraError(f"the warm start ended with status {status}: {said[-1]}")


def _follow(process: subprocess.Popen[bytes], progress: Progress) -> int:
    """Tell ``progress`` each line that the process prints; its status when it ends."""
    assert process.stdout is not None
    begun = b""
    while True:
        readable, _, _ = select.select([process.stdout], [], [], _SILENCE_S)
        if not readable:
            raise InfraError(f"the warm start has said nothing for {_SILENCE_S:g} s")
        part = os.read(process.stdout.fileno(), 65536)
        if not part:
            break
        *lines, begun = (begun + part).split(b"\n")
        for line in lines:
            progress(line.decode(errors="replace"))
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        raise InfraError("the warm start does not end") from None
