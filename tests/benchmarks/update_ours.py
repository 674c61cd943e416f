"""Our side of ``tests.benchmarks.update``: ``prepare`` writes adapter and log-probabilities, then updates are timed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from mlrl_core.config import load_config
from mlrl_core.learner.batch_file import BatchRow
from mlrl_core.learner.engine import Engine
from mlrl_core.learner.tensors import TensorBatch
from mlrl_core.ppo.advantages import group_advantages
from tests.benchmarks.resident import peak_mb, resident_mb


def open_engine(folder: Path, mode: str, dtype: str, tokens: int) -> Engine:
    """Rank 16 on all linear layers, one step of the whole batch; ``mode`` is gae or group, ``-frugal`` with gradient
    checkpointing."""
    settings = ("policy.lora.r=16", "policy.lora.alpha=32", "ppo.learning_rate=1e-5", "ppo.kl_coef=0", "seed=0")
    kind, _, frugal = mode.partition("-")
    chosen = (
        f"policy.dtype={dtype}",
        f"ppo.advantage={kind}",
        f"ppo.micro_batch_tokens={tokens}",
        f"learner.gradient_checkpointing={'true' if frugal else 'false'}",
    )
    return Engine(folder / "model", load_config("default", [*settings, *chosen]))


def rows_of(folder: Path) -> list[BatchRow]:
    task = json.loads((folder / "task.json").read_text())
    known = task.get("log_probs", [[0.0] * len(ids) for ids in task["responses"]])
    return [
        BatchRow(str(i), "", tuple(task["prompt"]), tuple(ids), tuple(old), reward, 1, 1, 0, "graded", "length")
        for i, (ids, old, reward) in enumerate(zip(task["responses"], known, task["rewards"], strict=True))
    ]


def prepare(folder: Path, dtype: str) -> None:
    """The adapter that both sides start from, the policy's own log-probabilities, and the advantages."""
    engine, rows = open_engine(folder, "group", dtype, 4096), rows_of(folder)
    with torch.no_grad():  # an untouched adapter would leave half of its gradients at zero
        generator = torch.Generator().manual_seed(1)
        for name, parameter in engine.network.trainable("policy").items():
            if ".lora_B." in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.01)
    engine.export_adapter(folder / "adapter")
    batch = TensorBatch.of(rows)
    log_probs = engine.compute_log_probs(engine.deal(rows, range(len(rows)), batch), batch)
    advantages, _ = group_advantages(batch.reward, batch.reward, batch.group, "group")
    task = json.loads((folder / "task.json").read_text())
    task["log_probs"] = [log_probs[i, : len(row.response_ids)].tolist() for i, row in enumerate(rows)]
    task["advantages"] = advantages.tolist()
    (folder / "task.json").write_text(json.dumps(task))
    print("{}")


def main(folder: Path, mode: str, dtype: str, steps: int, tokens: int) -> None:
    if mode == "prepare":
        prepare(folder, dtype)
        return
    engine = open_engine(folder, mode, dtype, tokens)
    from safetensors.torch import load_file

    stored = load_file(folder / "adapter" / "adapter_model.safetensors")
    with torch.no_grad():
        for name, parameter in engine.network.trainable("policy").items():
            parameter.copy_(stored[name.removeprefix("peft_model.").replace(".policy.", ".")])
    rows = rows_of(folder)
    loaded = resident_mb()
    metrics = [engine.update(rows) for _ in range(steps)]
    result = {
        "seconds": [each["timing_s/train"] for each in metrics],
        "loaded_mb": loaded,
        "peak_mb": peak_mb(),
        "loss": metrics[0]["actor/pg_loss"],
        "grad_norm": metrics[0]["actor/grad_norm"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    place, mode, dtype, steps, *size = sys.argv[1:]
    main(Path(place), mode, dtype, int(steps), int(size[0]) if size else 4096)
