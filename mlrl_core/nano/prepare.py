"""From a competition's public data to the backbone of version 0, cached: built once, then found."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random

from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens
from mlrl_core.agent.prompts import PromptSource, solve_prompt, task_text
from mlrl_core.cache import made_once
from mlrl_core.config import RunConfig
from mlrl_core.nano.facts import read_facts
from mlrl_core.nano.grammar import write_demonstration
from mlrl_core.nano.shipped import unpack_shipped

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Recipe:
    """All that a backbone is made of; two equal recipes make the same policy."""

    config: RunConfig
    competition: PromptSource
    sample_header: str
    demonstrations: tuple[str, ...]

    @property
    def task(self) -> str:
        return task_text(self.competition, self.sample_header, self.config.sandbox)

    def digest(self) -> str:
        """Over texts, settings and the syntax of the code that turns them into weights: layout does not count."""
        digest = hashlib.sha256()
        for name in ("model.py", "tokenizer.py", "warmstart.py"):
            source = resources.files("mlrl_core.nano").joinpath(name).read_text()
            digest.update(ast.dump(ast.parse(source)).encode())
        settings = self.config.warmstart.model_dump(exclude={"threads"})
        description = self.competition.description
        facts = [settings, self.config.prompt.max_tokens, self.task, description, self.demonstrations]
        digest.update(json.dumps(facts, sort_keys=True).encode())
        return digest.hexdigest()[:12]


def prepare_nano(
    config: RunConfig, competition: PromptSource, public_dir: Path, cache_dir: Path, progress: Progress
) -> Path:
    """A folder that transformers can load (model and tokenizer). Two processes at once end with one whole folder.

    The policy of the default recipe for ``diamonds`` ships with the package and is only unpacked; any other recipe is
    warm-started, once.
    """
    facts = read_facts(competition.id, competition.metric, public_dir)
    sample_header = (public_dir / "sample_submission.csv").read_text().split("\n", 1)[0].strip()
    rng = Random(config.warmstart.seed)
    demonstrations = tuple(write_demonstration(facts, rng).response for _ in range(config.warmstart.demonstrations))
    recipe = _Recipe(config, competition, sample_header, demonstrations)
    target = cache_dir / f"{competition.id}-{recipe.digest()}"

    def make(folder: Path) -> None:
        if not unpack_shipped(recipe.digest(), folder):
            _build(recipe, folder, progress)

    return made_once(target, make)


def _build(recipe: _Recipe, target: Path, progress: Progress) -> None:
    import torch

    from mlrl_core.nano.model import VOCAB_SIZE, build_model
    from mlrl_core.nano.tokenizer import train_tokenizer
    from mlrl_core.nano.warmstart import fine_tune

    config, settings = recipe.config, recipe.config.warmstart
    # Every demonstration is read behind the same task, so the task's words count as theirs do.
    repeats = len(recipe.demonstrations) // 4
    tokenizer = train_tokenizer(
        [*recipe.demonstrations, *[recipe.task] * repeats, recipe.competition.description], VOCAB_SIZE
    )
    prompt = solve_prompt(
        recipe.competition,
        recipe.sample_header,
        config.sandbox,
        config.prompt.max_tokens,
        lambda text: count_tokens(tokenizer, text),
    )
    responses = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in recipe.demonstrations]
    model = build_model(tokenizer.pad_token_id, tokenizer.eos_token_id, settings.seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads or threads)
    try:
        loss = fine_tune(
            model,
            chat_prompt_ids(tokenizer, prompt),
            responses,
            settings,
            lambda step, steps, loss: progress(f"warm start: step {step} of {steps}, loss {loss:.3f}"),
        )
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    facts = {"recipe": recipe.digest(), "loss": loss, "demonstrations": len(responses)}
    (target / "warmstart.json").write_text(json.dumps(facts, indent=2) + "\n")
