"""TRL's side of ``tests.benchmarks.update``: its GRPO loss, backward and optimiser step on prepared responses.

Runs in the environment with TRL. Sampling and scoring, which TRL does in the same loop, are left out: the tensors are
those that it would hand to its own ``compute_loss``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.resident import peak_mb, resident_mb

ROOT = Path(__file__).parents[2]


def open_trainer(folder: Path, dtype: str, micro_batch: int, responses: int, out: str) -> Any:
    """A GRPO trainer without KL, whose steps are a whole batch in parts of ``micro_batch``."""
    from datasets import Dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=getattr(torch, dtype))
    model = PeftModel.from_pretrained(base, str(folder / "adapter"), is_trainable=True)
    words = ROOT / "mlrl_core" / "nano" / "weights" / "tokenizer.json"  # any: nothing is tokenised
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(words), eos_token="<|end|>", pad_token="<|pad|>")
    settings = GRPOConfig(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=responses // micro_batch,
        num_generations=responses,
        beta=0.0,
        epsilon=0.2,
        temperature=1.0,
        loss_type="dapo",  # the token mean over the batch, as ours
        learning_rate=1e-5,
        max_grad_norm=1.0,
        weight_decay=0.0,
        report_to="none",
        disable_dropout=True,
    )
    return GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "x"}] * responses),
        processing_class=tokenizer,
    )


def parts_of(folder: Path, micro_batch: int) -> list[dict[str, Any]]:
    """The micro-batches, padded as TRL pads: responses to the longest of the batch."""
    task = json.loads((folder / "task.json").read_text())
    responses, width = task["responses"], max(map(len, task["responses"]))
    ids = torch.full((len(responses), width), 2)
    mask = torch.zeros(len(responses), width, dtype=torch.long)
    old = torch.zeros(len(responses), width)
    for i, response in enumerate(responses):
        ids[i, : len(response)] = torch.tensor(response)
        mask[i, : len(response)] = 1
        old[i, : len(response)] = torch.tensor(task["log_probs"][i])
    prompt = torch.tensor([task["prompt"]]).repeat(len(responses), 1)
    advantages = torch.tensor(task["advantages"], dtype=torch.float32)
    return [
        {
            "prompt_ids": prompt[at],
            "prompt_mask": torch.ones_like(prompt[at]),
            "completion_ids": ids[at],
            "completion_mask": mask[at],
            "old_per_token_logps": old[at],
            "advantages": advantages[at],
            "num_items_in_batch": mask.sum(),
        }
        for at in (slice(start, start + micro_batch) for start in range(0, len(responses), micro_batch))
    ]


def main(folder: Path, dtype: str, steps: int, micro_batch: int) -> None:
    parts = parts_of(folder, micro_batch)
    with tempfile.TemporaryDirectory() as out:
        responses = len(json.loads((folder / "task.json").read_text())["responses"])
        trainer = open_trainer(folder, dtype, micro_batch, responses, out)
        trainer.create_optimizer()
        trainer.current_gradient_accumulation_steps = len(parts)
        model = trainer.model
        model.train()
        trained = [p for p in model.parameters() if p.requires_grad]
        loaded, seconds, losses, norms = resident_mb(), [], [], []
        for _ in range(steps):
            began = time.perf_counter()
            total = 0.0
            for part in parts:
                loss = trainer.compute_loss(model, part)
                trainer.accelerator.backward(loss)
                total += float(loss.detach())
            norms.append(float(torch.nn.utils.clip_grad_norm_(trained, trainer.args.max_grad_norm)))
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
            seconds.append(time.perf_counter() - began)
            losses.append(total)
    result = {
        "seconds": seconds,
        "loaded_mb": loaded,
        "peak_mb": peak_mb(),
        "loss": losses[0],
        "grad_norm": norms[0],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    place, dtype, steps, size = sys.argv[1:]
    main(Path(place), dtype, int(steps), int(size))
