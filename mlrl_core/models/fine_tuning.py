"""The program of a warm start: ``python -m mlrl_core.models.fine_tuning JOB BASE FOLDER``, started by ``warmstart``.

JOB holds the configuration and the lesson; FOLDER gets BASE with the adapter that has learned it merged in. It prints
how far it is, and ends with the process that has started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from mlrl_core.agent.encoding import load_tokenizer
from mlrl_core.config import RunConfig
from mlrl_core.config.load import load_run_config
from mlrl_core.errors import MlrlError

Progress = Callable[[str], None]
MISTAKE = 2  # the exit status for a user's mistake, whose line is the last of standard error
_WARMUP_SHARE = 0.1
_LAST_RATE = 0.1


def make(job: Path, base: Path, folder: Path) -> None:
    """Learn, merge, save. Raises MlrlError for a model that can't be trained."""
    import torch
    from transformers import AutoModelForCausalLM

    from mlrl_core.generation.adapter import AdapterMerger

    config = load_run_config(job / "config.toml")
    prompt_ids, responses = json.loads((job / "lesson.json").read_text())
    if config.warmstart.threads:
        torch.set_num_threads(config.warmstart.threads)
    adapter = job / "adapter"
    adapter.mkdir()
    loss = fine_tune(base, config, tuple(prompt_ids), [tuple(each) for each in responses], adapter, _say)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=config.policy.dtype, local_files_only=True)
    AdapterMerger(model).merge(adapter)
    model.save_pretrained(folder)
    load_tokenizer(base).save_pretrained(folder)
    facts = {"base": base.name, "demonstrations": len(responses), "loss": loss}
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


def _say(text: str) -> None:
    print(text, flush=True)


def _end_with_parent() -> None:
    """By end-of-file, or where another process has inherited the pipe, by its going."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    while os.read(0, 4096):
        pass
    os._exit(3)


def main() -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job, base, folder = map(Path, sys.argv[1:])
    try:
        make(job, base, folder)
    except MlrlError as error:
        sys.stderr.write(f"{error}\n")
        return MISTAKE
    return 0


if __name__ == "__main__":
    sys.exit(main())
