"""One round as a run makes it, with its guards: what ``tests.gpu_check`` does once server and learner are up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.generation import Generated, GenerationRequest
from mlrl_core.generation.vllm.generator import VllmGenerator
from mlrl_core.generation.vllm.pool import TOLERANCE
from mlrl_core.learner.batch_file import BatchRow, write_batch
from mlrl_core.learner.client import LearnerClient

PROMPT = tuple(2 + (7 * i) % 90 for i in range(64))


class OutOfTime(Exception):
    """No further check is begun."""


class Report:
    """What was found, check by check, until ``stopped`` is set."""

    def __init__(self, stopped: threading.Event) -> None:
        self.checks: dict[str, dict[str, Any]] = {}
        self._stopped = stopped

    @contextmanager
    def check(self, name: str) -> Iterator[dict[str, Any]]:
        """Run a check; what it puts into the dict is reported, and an exception is its failure.

        Raises OutOfTime once time is up.
        """
        if self._stopped.is_set():
            raise OutOfTime
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


def one_round(
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
