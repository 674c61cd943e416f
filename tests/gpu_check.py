"""The first thing to run on a machine with a GPU: ``python -m tests.gpu_check --out gpu.json``.

On one CUDA device, within seven minutes, it goes the way of a run and checks what a CPU can't tell: a vLLM server and
the learner side by side, the server's log-probabilities against the learner's, one update, the push of the new version
with its canary, guards against an adapter with NaN and a sampler of another policy, memory and tokens per second. The
result is JSON; exit status 1 when a check failed. A check is done even where another one failed, as far as it can be;
what there was no time for is missing, and ``in_time`` false.

Random weights in the shape of SmolLM2 unless ``--model`` names a folder of transformers (a real one is better).
``--device cpu --shape tiny`` runs the same on a CPU; the suite does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from mlrl_core.config import RunConfig, load_config
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm.generator import VllmGenerator
from mlrl_core.generation.vllm.process import visible_device
from mlrl_core.learner.client import LearnerClient
from tests.gpu_round import OutOfTime, Report, one_round
from tests.models import SMOLLM2, TINY, save_llama

SHAPES = {"smollm2": SMOLLM2, "tiny": TINY}
SERVER_SHARE = 0.4  # of the device's memory; the learner has the rest
START_S, UPDATE_S, REQUEST_S = 150.0, 90.0, 60.0
LIMIT_S = 360.0  # then server and learner are ended, which takes at most another minute, and what was found is printed


def examine(
    device: str,
    shape: str,
    model: Path | None,
    dtype: str,
    responses: int,
    tokens: int,
    folder: Path,
    limit_s: float = LIMIT_S,
) -> dict[str, Any]:
    """All checks, with what they write in ``folder``; after ``limit_s`` seconds the rest fails. The result is what is
    printed."""
    stopped = threading.Event()
    report = Report(stopped)
    began = time.monotonic()
    backbone = model or save_llama(folder / "model", SHAPES[shape], dtype=dtype)
    config = configuration(device, backbone, dtype, tokens)
    run = folder / "run"
    with ExitStack() as stack:
        generator = None
        learner = stack.enter_context(_killed_at_the_end(LearnerClient(run, config, backbone)))

        def stop() -> None:
            stopped.set()
            learner.kill()
            if generator:
                generator.close()

        timer = threading.Timer(limit_s, stop)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        with suppress(OutOfTime):
            with report.check("server starts"):
                generator = stack.enter_context(_closing(VllmGenerator(config, backbone, run, stopped)))
            with report.check("learner starts"):
                learner.start()
            if generator and report.passed:
                one_round(report, generator, learner, config, run, responses)
            with report.check("memory") as found:
                found |= _device_memory(device)
    return {
        "ok": report.passed and not stopped.is_set(),
        "in_time": not stopped.is_set(),
        "seconds": round(time.monotonic() - began, 1),
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
        "model": str(model or f"random, {shape}"),
        "dtype": dtype,
        "libraries": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "checks": report.checks,
    }


def configuration(device: str, backbone: Path, dtype: str, tokens: int) -> RunConfig:
    """Server and learner on the one device, as a run would have them."""
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
        settings += ['generation.servers=["cuda:0"]', f"generation.gpu_memory_share={SERVER_SHARE}"]
    return load_config("default", settings)


@contextmanager
def _closing(generator: VllmGenerator) -> Iterator[VllmGenerator]:
    try:
        yield generator
    finally:
        with suppress(InfraError):
            generator.close()


@contextmanager
def _killed_at_the_end(learner: LearnerClient) -> Iterator[LearnerClient]:
    try:
        yield learner
    finally:
        learner.kill()


def _device_memory(device: str) -> dict[str, float]:
    """Used and whole memory of the device in GiB, as its driver sees it, with server and learner on it."""
    if device != "cuda":
        return {}
    command = [
        "nvidia-smi",
        f"--id={visible_device(0)}",
        "--query-gpu=memory.used,memory.total",
        "--format=csv,noheader,nounits",
    ]
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
