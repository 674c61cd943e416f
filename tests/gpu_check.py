"""The first thing to run on a machine with a GPU: ``python -m tests.gpu_check --out gpu.json``.

On one CUDA device, within seven minutes, it goes the way of a run and checks what a CPU can't tell: a vLLM server and
the learner side by side, the server's log-probabilities against the learner's, one update, the push of the new version
with its canary, guards against an adapter with NaN and a sampler of another policy, memory and tokens per second. The
result is JSON; exit status 1 when a check failed. A check is done even where another one failed, as far as it can be.

Random weights in the shape of SmolLM2 unless ``--model`` names a folder of transformers (a real one is better).
``--device cpu --shape tiny`` runs the same on a CPU; the suite does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from mlrl_core.agent.encoding import load_tokenizer
from mlrl_core.config import RunConfig, load_config
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation import Generated, GenerationRequest
from mlrl_core.generation.vllm.environment import find_python
from mlrl_core.generation.vllm.generator import VllmGenerator
from mlrl_core.generation.vllm.pool import TOLERANCE
from mlrl_core.learner.batch_file import BatchRow, write_batch
from mlrl_core.learner.client import LearnerClient
from mlrl_core.nano.shipped import shipped_dir
from tests.benchmarks.update import SMOLLM2

# vLLM's attention on a CPU knows no heads below 64.
TINY = SMOLLM2 | {
    "max_position_embeddings": 2048,
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
SHAPES = {"smollm2": SMOLLM2, "tiny": TINY}
SERVER_SHARE = 0.4  # of the device's memory; the learner has the rest
START_S, UPDATE_S, REQUEST_S = 180.0, 90.0, 60.0  # with everything else below seven minutes
PROMPT = tuple(2 + (7 * i) % 90 for i in range(64))


class Report:
    """What was found, check by check."""

    def __init__(self) -> None:
        self.checks: dict[str, dict[str, Any]] = {}

    @contextmanager
    def check(self, name: str) -> Iterator[dict[str, Any]]:
        """Run a check; what it puts into the dict is reported, and an exception is its failure."""
        found: dict[str, Any] = {"ok": False}
        self.checks[name] = found
        began = time.monotonic()
        try:
            yield found
            found["ok"] = True
        except Exception as error:  # a check that fails is a result, of whatever type
            found["error"] = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        finally:
            found["seconds"] = round(time.monotonic() - began, 2)

    @property
    def passed(self) -> bool:
        return all(found["ok"] for found in self.checks.values())


def examine(
    device: str, shape: str, model: Path | None, dtype: str, responses: int, tokens: int, folder: Path
) -> dict[str, Any]:
    """All checks, with what they write in ``folder``. The result is what is printed."""
    report = Report()
    began = time.monotonic()
    backbone = model or random_model(SHAPES[shape], dtype, folder / "model")
    config = _config(device, backbone, dtype, tokens)
    run = folder / "run"
    with ExitStack() as stack:
        generator = learner = None
        with report.check("server starts"):
            generator = stack.enter_context(_closing(VllmGenerator(config, backbone, run)))
        with report.check("learner starts") as found:
            learner = stack.enter_context(LearnerClient(run, config, backbone))
            found["version"] = 0
        if generator and learner:
            _one_round(report, generator, learner, config, run, responses)
        report.checks["memory"] = {"ok": True, **_device_memory(device)}
    return {
        "ok": report.passed,
        "seconds": round(time.monotonic() - began, 1),
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
        "model": str(model or f"random, {shape}"),
        "dtype": dtype,
        "libraries": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "checks": report.checks,
    }


def _one_round(
    report: Report, generator: VllmGenerator, learner: LearnerClient, config: RunConfig, run: Path, responses: int
) -> None:
    adapters = [run / "versions" / f"{version:05d}" / "adapter" for version in range(2)]
    answers: list[Generated] = []
    with report.check("version 0 is pushed, its canary agrees"):
        generator.load_version(0, adapters[0])
    with report.check("wave of version 0") as found:
        list(generator.generate(_requests(4, 1000), 0))  # the first passes compile
        answers = _wave(generator, 0, responses, found)
    with report.check("guard: a sampler of another policy is refused"):
        _must_fail("log-probabilities", lambda: _update(learner, run, answers, "other", shift=1.0))
    with report.check("one update, log-probabilities agree") as found:
        metrics = _update(learner, run, answers, "1")
        names = ("sampling/abs_log_prob_diff", "mismatch_kl/mean", "actor/grad_norm", "adapter/delta_norm")
        names += ("learner/tokens_per_s", "learner/device_mem_gb", "learner/rss_gb", "timing_s/train")
        found |= {name: metrics[name] for name in names}
        limit = TOLERANCE[not config.is_rounded]
        if not metrics["sampling/abs_log_prob_diff"] < limit:
            raise ValueError(f"server and learner differ by {metrics['sampling/abs_log_prob_diff']:.3g}, limit {limit}")
        if not metrics["adapter/delta_norm"] > 0:
            raise ValueError("the update moved nothing")
    with report.check("version 1 is pushed, its canary agrees") as found:
        pushed = time.monotonic()
        generator.load_version(1, adapters[1])
        next(iter(generator.generate(_requests(1, 2000), 1)))
        found["push_to_first_response_s"] = round(time.monotonic() - pushed, 3)
        if failed := generator.metrics()["adapter/push_fail"]:
            raise ValueError(f"{failed:g} pushes failed, see {run / 'vllm'}")
    with report.check("guard: an adapter with NaN is not pushed"):
        broken = _with_nan(adapters[1], run.parent / "broken" / "adapter")
        failures = generator.metrics()["adapter/push_fail"]
        generator.load_version(2, broken)  # the version before it goes on
        if generator.metrics()["adapter/push_fail"] != failures + 1:
            raise ValueError("it was pushed")
    with report.check("wave of version 1, after the guard") as found:
        _wave(generator, 1, responses, found)


def random_model(shape: dict[str, int], dtype: str, folder: Path) -> Path:
    """A Llama with random weights and the nano tokenizer, saved in ``folder``."""
    tokenizer = load_tokenizer(shipped_dir())
    torch.manual_seed(0)
    ids = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(**shape, **ids, tie_word_embeddings=True)
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _config(device: str, backbone: Path, dtype: str, tokens: int) -> RunConfig:
    settings = [
        f"policy.model={backbone}",
        f"policy.dtype={dtype}",
        "policy.lora.r=16",
        "policy.lora.alpha=32",
        "prompt.max_tokens=128",
        f"sampling.max_new_tokens={tokens}",
        "sampling.temperature=0.7",
        "generation.backend=vllm",
        "generation.kv_cache_gb=1",
        f"generation.start_deadline_s={START_S}",
        f"generation.request_deadline_s={REQUEST_S}",
        f"learner.start_deadline_s={START_S}",
        f"learner.update_deadline_s={UPDATE_S}",
        f"learner.device={device}",
        "ppo.learning_rate=1e-3",
        "ppo.micro_batch_tokens=4096",
        "learner.gradient_checkpointing=true",
    ]
    if device == "cuda":
        command = [str(find_python()), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--gpu-memory-utilization", str(SERVER_SHARE)]
        settings += ['generation.servers=["cuda:0"]', f"generation.command={json.dumps(command)}"]
    return load_config("default", settings)


def _requests(count: int, seed: int) -> list[GenerationRequest]:
    return [GenerationRequest(f"s{number}", PROMPT, seed=seed + number) for number in range(count)]


def _wave(generator: VllmGenerator, version: int, responses: int, found: dict[str, Any]) -> list[Generated]:
    answers = list(generator.generate(_requests(responses, 0), version))
    if {answer.policy_version for answer in answers} != {version}:
        raise ValueError(f"sampled from {sorted({answer.policy_version for answer in answers})}, not from {version}")
    tokens = sum(len(answer.response_ids) for answer in answers)
    found |= {"responses": len(answers), "tokens": tokens, "tok_s": round(generator.metrics()["generator/tok_s"], 1)}
    return sorted(answers, key=lambda answer: int(answer.solution_id[1:]))


def _update(
    learner: LearnerClient, run: Path, answers: list[Generated], batch: str, shift: float = 0.0
) -> dict[str, float]:
    """An update on made-up rewards; ``shift`` is put on the sampler's log-probabilities."""
    rows = [
        BatchRow(
            answer.solution_id,
            "none",
            PROMPT,
            answer.response_ids,
            tuple(value - shift for value in answer.log_probs),
            reward=float(number % 2),
            duration_s=1.0,
            duration_weight=1.0,
            policy_version=0,
            outcome="graded",
            finish_reason=answer.finish_reason,
        )
        for number, answer in enumerate(answers)
    ]
    path = run / "batches" / f"{batch}.parquet"
    return learner.update(batch, path, write_batch(path, rows), parent_version=0).metrics


def _must_fail(words: str, action: Callable[[], object]) -> None:
    try:
        action()
    except MlrlError as error:
        if words not in str(error):
            raise
        return
    raise ValueError("it was accepted")


def _with_nan(adapter: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    (target / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text())
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors[min(tensors)].view(-1)[0] = float("nan")
    save_file(tensors, target / "adapter_model.safetensors", metadata={"format": "pt"})
    return target


@contextmanager
def _closing(generator: VllmGenerator) -> Iterator[VllmGenerator]:
    try:
        yield generator
    finally:
        with suppress(InfraError):
            generator.close()


def _device_memory(device: str) -> dict[str, float]:
    """Used and whole memory of the device in GiB, as its driver sees it, with server and learner on it."""
    if device != "cuda":
        return {}
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    used, total = (float(part) / 1024 for part in done.stdout.split(","))
    return {"used_gib": round(used, 1), "total_gib": round(total, 1)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="smollm2")
    parser.add_argument("--model", type=Path, help="a folder of transformers, in place of random weights")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--responses", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256, help="of each response, at most")
    parser.add_argument("--out", type=Path, help="where the JSON goes too")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU: install a CUDA build of it, or try --device cpu --shape tiny\n")
        return 2
    if options.model and not (options.model / "config.json").is_file():
        sys.stderr.write(f"--model {options.model}: the folder holds no config.json\n")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
            result = examine(
                options.device,
                options.shape,
                options.model,
                options.dtype,
                options.responses,
                options.tokens,
                Path(folder),
            )
    except (MlrlError, InfraError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
