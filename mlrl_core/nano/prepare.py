"""From a competition's public data to the backbone of version 0, cached: built once, then found."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from random import Random

from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens
from mlrl_core.agent.prompts import PromptSource, solve_prompt, task_text
from mlrl_core.config import RunConfig
from mlrl_core.nano.facts import TaskFacts, read_facts
from mlrl_core.nano.grammar import write_demonstration

Progress = Callable[[str], None]


def prepare_nano(
    config: RunConfig, competition: PromptSource, public_dir: Path, cache_dir: Path, progress: Progress
) -> Path:
    """A folder that transformers can load (model and tokenizer). Two processes at once end with one whole folder.

    The folder's name is a digest of all that went into it: the source of this package, the warm-start settings, the
    public facts of the competition and the prompt.
    """
    facts = read_facts(competition.id, competition.metric, public_dir)
    sample_header = (public_dir / "sample_submission.csv").read_text().split("\n", 1)[0].strip()
    target = cache_dir / f"{competition.id}-{_digest(config, facts, competition, sample_header)}"
    if (target / "DONE").exists():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=cache_dir))
    try:
        _build(config, facts, competition, sample_header, partial, progress)
        try:
            os.rename(partial, target)
        except OSError:
            if not (target / "DONE").exists():  # else another process was first, and made the same
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _digest(config: RunConfig, facts: TaskFacts, competition: PromptSource, sample_header: str) -> str:
    digest = hashlib.sha256()
    for file in sorted(resources.files("mlrl_core.nano").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".py"):
            digest.update(file.read_bytes())
    prompt = solve_prompt(competition, sample_header, config.sandbox, 1_000_000, len)
    digest.update(json.dumps([config.warmstart.model_dump(), config.prompt.max_tokens, repr(facts), prompt]).encode())
    return digest.hexdigest()[:12]


def _build(
    config: RunConfig,
    facts: TaskFacts,
    competition: PromptSource,
    sample_header: str,
    target: Path,
    progress: Progress,
) -> None:
    import torch

    from mlrl_core.nano.model import VOCAB_SIZE, build_model
    from mlrl_core.nano.tokenizer import train_tokenizer
    from mlrl_core.nano.warmstart import fine_tune

    settings = config.warmstart
    rng = Random(settings.seed)
    demonstrations = [write_demonstration(facts, rng).response for _ in range(settings.demonstrations)]
    # Every demonstration is read behind the same task, so the task's words count as theirs do.
    task = task_text(competition, sample_header, config.sandbox)
    texts = [*demonstrations, *[task] * (len(demonstrations) // 4), competition.description]
    tokenizer = train_tokenizer(texts, VOCAB_SIZE)
    prompt = solve_prompt(
        competition, sample_header, config.sandbox, config.prompt.max_tokens, lambda text: count_tokens(tokenizer, text)
    )
    prompt_ids = chat_prompt_ids(tokenizer, prompt)
    responses = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in demonstrations]
    model = build_model(tokenizer.pad_token_id, tokenizer.eos_token_id, settings.seed)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    loss = fine_tune(
        model,
        prompt_ids,
        responses,
        settings,
        lambda step, steps, loss: progress(f"warm start: step {step} of {steps}, loss {loss:.3f}"),
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    facts_file = {"loss": loss, "demonstrations": len(demonstrations), "prompt_tokens": len(prompt_ids)}
    (target / "warmstart.json").write_text(json.dumps(facts_file, indent=2) + "\n")
    (target / "DONE").touch()
