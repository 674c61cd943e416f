"""One update against TRL's GRPO step, like with like: ``python -m tests.benchmarks.update``.

The shapes of SmolLM2-135M with random weights, one LoRA adapter (both sides start from the same file), 32 responses of
mixed length to one prompt, no critic, no KL term, the same dtype and threads. Timed are loss, backward and optimiser
step; memory is the peak of the resident set during that, minus what was resident after loading. Each side runs in a
process of its own, TRL at every micro-batch and ours at every token budget that is asked for, with and without gradient
checkpointing, the sides in turn, and each side's fastest counts. Ours runs in the environment that the learner's client
gives its workers. That both sides compute the same thing is checked: loss and gradient norm must agree.

TRL lives in an environment of its own below the user's cache folder (``mlrl/trl-<version>``), made with pip at the
first run. It sees this environment's packages, so both sides have the same torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any

from tests.models import SMOLLM2, save_llama

ROOT = Path(__file__).parents[2]
TRL = "1.16.0"
AGREEMENT = {"float32": 1e-3, "bfloat16": 0.1}  # relative, of loss and gradient norm
LIMIT_S = 3600.0
MODES = {"ours": "group", "ours, checkpointed": "group-frugal", "ours, PPO with critic": "gae"}
TINY = SMOLLM2 | {"vocab_size": 500, "hidden_size": 72, "intermediate_size": 96, "num_hidden_layers": 2}


def trl_python() -> Path:
    """The interpreter of the environment with TRL, made if it isn't there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlrl"
    home = cache / f"trl-{TRL}"
    python = home / "bin" / "python"
    if not (home / "DONE").exists():
        print(f"making {home}", flush=True)
        venv.create(home, with_pip=True, clear=home.exists())
        own = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})["purelib"]
        (Path(own) / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run([python, "-m", "pip", "install", "-q", f"trl=={TRL}"], check=True, timeout=LIMIT_S)
        (home / "DONE").touch()
    return python


def prepare(folder: Path, tiny: bool, dtype: str, seed: int) -> dict[str, Any]:
    """The model and the responses, written for both sides."""
    shapes = TINY if tiny else SMOLLM2
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    save_llama(folder / "model", shapes, seed=seed, dtype=dtype, tokenizer=False, **special)
    rng = random.Random(seed)
    prompt, longest, count = (16, 24, 32) if tiny else (400, 512, 32)
    lengths = [max(2, round(longest * (i + 1) / count)) for i in range(count)]
    rng.shuffle(lengths)

    def ids(length: int) -> list[int]:
        return [rng.randrange(3, shapes["vocab_size"]) for _ in range(length)]

    task = {
        "prompt": ids(prompt),
        "responses": [ids(length) for length in lengths],
        "rewards": [rng.gauss(0, 1) for _ in lengths],
    }
    (folder / "task.json").write_text(json.dumps(task))
    return {"prompt": prompt, "responses": count, "response_tokens": sum(lengths), "longest": max(lengths)}


def measure(python: Path, module: str, folder: Path, threads: int, *arguments: str) -> dict[str, Any]:
    """One process of one side; its last line is its result."""
    from mlrl_core.learner.client import FIRM_MALLOC

    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
        **(FIRM_MALLOC if module == "update_ours" else {}),
    }
    command = [str(python), "-m", f"tests.benchmarks.{module}", str(folder), *arguments]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def check_agreement(ours: dict[str, Any], theirs: dict[str, Any], tolerance: float) -> None:
    """Exit unless both sides have computed the same loss and the same gradient."""
    for key in ("loss", "grad_norm"):
        if abs(ours[key] - theirs[key]) > tolerance * max(abs(theirs["grad_norm"]), 1e-6):
            raise SystemExit(f"not like with like: {key} is {ours[key]:.6g} here and {theirs[key]:.6g} in TRL")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a model of two layers: shows that everything runs")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3, help="processes per side and setting")
    parser.add_argument("--steps", type=int, default=1, help="timed updates in each process")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1, 4, 8, 32], help="of TRL, in responses")
    parser.add_argument("--token-budgets", type=int, nargs="+", default=[2048, 4096], help="ours, in tokens")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    python = trl_python()
    sides = [("TRL", "update_trl", python, str(m)) for m in arguments.micro_batches]
    for side in MODES:
        sides += [(side, "update_ours", Path(sys.executable), str(b)) for b in arguments.token_budgets]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = prepare(folder, arguments.tiny, arguments.dtype, arguments.seed)
        print(json.dumps(shape | {"dtype": arguments.dtype, "threads": arguments.threads, "trl": TRL}), flush=True)
        options = (arguments.dtype, str(arguments.steps))
        measure(Path(sys.executable), "update_ours", folder, arguments.threads, "prepare", *options)
        for _ in range(arguments.repeats):
            for side, module, interpreter, size in sides:
                arguments_of = (*options, size) if side == "TRL" else (MODES[side], *options, size)
                found.setdefault((side, size), []).append(
                    measure(interpreter, module, folder, arguments.threads, *arguments_of)
                )
                print(side, size, found[side, size][-1], flush=True)
        mine = found["ours", str(arguments.token_budgets[0])][0]
        check_agreement(mine, found["TRL", str(arguments.micro_batches[0])][0], AGREEMENT[arguments.dtype])
    report(found, shape["response_tokens"])


def report(found: dict[tuple[str, str], list[dict[str, Any]]], tokens: int) -> None:
    """A Markdown table of medians, and the two ratios of each side's best."""
    print("\n| side | size | response tokens / s | seconds | memory, MB |\n|---|---|---|---|---|")
    best: dict[str, tuple[float, float]] = {}
    for (side, size), runs in found.items():
        seconds = statistics.median(s for run in runs for s in run["seconds"])
        memory = statistics.median(run["peak_mb"] - run["loaded_mb"] for run in runs)
        print(f"| {side} | {size} | {tokens / seconds:.0f} | {seconds:.2f} | {memory:.0f} |")
        if side not in best or seconds < best[side][0]:
            best[side] = (seconds, memory)
    their_s, their_mb = best["TRL"]
    for side in MODES:
        our_s, our_mb = best[side]
        print(f"\n{side}, of TRL, each at its fastest: {their_s / our_s:.2f} x the tokens per second, ", end="")
        print(f"{our_mb / their_mb:.2f} x the memory")


if __name__ == "__main__":
    main()
