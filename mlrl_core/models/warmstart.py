"""Warm start of a chat model: a LoRA adapter learns the grammar's demonstrations and is merged into the weights.

The adapter, the packed batches and the log-probabilities are the learner's own, so that version 0 has been through the
code that trains it further. The merged folder is the backbone of the run: version 0 has untouched adapters on it, and
reference, instrumenter and server all use it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens, load_tokenizer
from mlrl_core.agent.prompts import PromptSource, solve_prompt
from mlrl_core.cache import made_once
from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.models.smollm2 import file_digest
from mlrl_core.nano.facts import read_facts
from mlrl_core.nano.grammar import write_demonstration

Progress = Callable[[str], None]
_WARMUP_SHARE = 0.1
_LAST_RATE = 0.1


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
    other. Raises MlrlError for a competition that the grammar has no words for.
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
    import torch
    from transformers import AutoModelForCausalLM

    from mlrl_core.generation.adapter import AdapterMerger

    threads = torch.get_num_threads()
    torch.set_num_threads(config.warmstart.threads or threads)
    try:
        with tempfile.TemporaryDirectory(prefix="adapter-") as adapter:
            loss = fine_tune(base, config, lesson.prompt_ids, lesson.responses, Path(adapter), progress)
            model = AutoModelForCausalLM.from_pretrained(base, dtype=config.policy.dtype, local_files_only=True)
            AdapterMerger(model).merge(Path(adapter))
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(folder)
    load_tokenizer(base).save_pretrained(folder)
    facts = {"base": base.name, "demonstrations": len(lesson.responses), "loss": loss}
    (folder / "warmstart.json").write_text(json.dumps(facts, indent=2) + "\n")


def fine_tune(
    base: Path,
    config: RunConfig,
    prompt_ids: tuple[int, ...],
    responses: Sequence[tuple[int, ...]],
    adapter: Path,
    progress: Progress,
) -> float:
    """Minimise the cross-entropy of ``responses`` (ids, end token included) after the one prompt; write the adapter.

    Returns the mean loss of the last tenth of the steps, in nats per token.
    """
    import torch

    from mlrl_core.learner.batch_file import BatchRow
    from mlrl_core.learner.network import Network
    from mlrl_core.learner.packing import pack_rows
    from mlrl_core.learner.ranks import Ranks
    from mlrl_core.ppo.losses import token_mean

    settings = config.warmstart
    # The seed of the run decides nothing here: all runs of one recipe begin with the same version 0.
    sampled = config.sampling.model_copy(update={"temperature": 1.0})
    network = Network(base, config.model_copy(update={"seed": settings.seed, "sampling": sampled}), Ranks.alone())
    rows = [
        BatchRow(str(i), "", prompt_ids, each, (0.0,) * len(each), 0, 0, 1, 0, "graded", "stop")
        for i, each in enumerate(responses)
    ]
    steps = _steps(len(rows), settings.batch_size, settings.epochs, settings.seed)
    parameters = list(network.trainable("policy").values())
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, len(steps)))
    width = max(len(each) for each in responses)
    losses: list[float] = []
    for number, chosen in enumerate(steps, 1):
        tokens, loss = sum(len(responses[i]) for i in chosen), 0.0
        with network.acting("policy"):
            for pack in pack_rows(rows, chosen, width, config.ppo.micro_batch_tokens):
                log_probs = network(pack, "policy").log_probs
                part = token_mean(-log_probs, torch.ones_like(log_probs), tokens)
                part.backward()
                loss += part.item()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        losses.append(loss)
        progress(f"warm start: step {number} of {len(steps)}, loss {loss:.3f}")
    network.export_adapter(adapter, Ranks.alone())
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def _steps(rows: int, size: int, epochs: int, seed: int) -> list[list[int]]:
    """Row numbers of each optimiser step; every row is in one step of each epoch."""
    rng, steps = Random(seed), []
    for _ in range(epochs):
        order = list(range(rows))
        rng.shuffle(order)
        steps += [order[start : start + size] for start in range(0, rows, size)]
    return steps


def _rate(step: int, steps: int) -> float:
    """Share of the learning rate: linear warm-up, then linearly down to a tenth."""
    warmup = max(1, int(steps * _WARMUP_SHARE))
    if step < warmup:
        return (step + 1) / warmup
    return 1 - (1 - _LAST_RATE) * (step - warmup) / max(1, steps - warmup)
