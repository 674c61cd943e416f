"""Stand-ins for the parts that a test is not about, and example records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError
from mlrl_core.experience import ExperienceStore, RunDirectory, solution_id_of, solution_seed
from mlrl_core.experience.episodes import previous_of
from mlrl_core.learner.batch_file import batch_digest, read_batch
from mlrl_core.records import (
    Execution,
    Experience,
    InstrumentedProgram,
    Outcome,
    Reward,
    Score,
    Solution,
    StreamCapture,
)
from mlrl_core.tracking import Tracker
from tasks.resources import Arena, Resources

_STATUS = {
    "timeout": "timeout",
    "error": "error",
    "oom": "oom",
    "output_limit": "output_limit",
    "cancelled": "cancelled",
}


def experience(
    wave: int,
    slot: int,
    outcome: str = "graded",
    reward: float | None = None,
    raw: float = 0.5,
    duration_s: float = 1.0,
    code: str = "print(1)",
    text: str | None = None,
    milestone_values: dict[str, float] | None = None,
) -> Experience:
    """A consistent row with every part that its outcome has."""
    has_code = outcome not in ("no_code", "infra_error")
    solution = Solution(
        solution_id=solution_id_of(wave, slot),
        competition_id="toy",
        wave=wave,
        slot=slot,
        prompt_kind="solve",
        parent_id=None,
        policy_version=wave - 1,
        seed=slot,
        prompt_ids=(1, 2, 3),
        response_ids=(4, 5, 0),
        log_probs=(-0.1, -1 / 3, -0.25),
        finish_reason="stop",
        text=code if text is None else text,
        plan="",
        code=code if has_code else None,
        generated_at=100.0,
        generation_s=0.5,
    )
    execution = Execution(
        status=cast(Any, _STATUS.get(outcome, "ok")),
        exit_code=1 if outcome == "error" else 0,
        signal=None,
        duration_s=duration_s,
        wall_s=duration_s + 0.1,
        queue_s=0.2,
        cpu_s=None,
        peak_memory_mb=12.5,
        stdout=StreamCapture("head", "", 4),
        stderr=StreamCapture("", "", 0),
        milestones=("import", "load"),
        milestone_values=milestone_values or {},
        submission_state="ok" if outcome in ("graded", "invalid_submission") else "missing",
        submission_reason=None,
        submission_path=None,
        submission_bytes=10,
        started_at=101.0,
        finished_at=102.0,
        backend="fake",
    )
    graded = outcome == "graded"
    scored = outcome in ("graded", "invalid_submission")
    total = (raw if graded else -10.0) if reward is None else reward
    return Experience(
        solution=solution,
        program=InstrumentedProgram(code, "ast", "abc", ("import",), (1,)) if has_code else None,
        execution=execution if has_code else None,
        score=Score(raw if graded else None, graded, True, versions={"scikit-learn": "1"}) if scored else None,
        reward=None
        if outcome in ("infra_error", "cancelled")
        else Reward(total, cast(Outcome, outcome), raw if graded else None, 0.0),
        outcome=cast(Outcome, outcome),
        generated_at=100.0,
        queued_at=100.8,
        started_at=101.0,
        finished_at=102.0,
    )


def with_version(row: Experience, version: int) -> Experience:
    """The row as if sampled by another policy version."""
    return dataclasses.replace(row, solution=dataclasses.replace(row.solution, policy_version=version))


class FakePolicy:
    """A policy whose responses follow from the prompt, the seed and the loaded adapter alone, as a real one's do."""

    def __init__(self, run: RunDirectory, config: RunConfig, delay_s: float = 0.0) -> None:
        self.config = config
        self.store = ExperienceStore(run)
        self.delay_s = delay_s
        self.adapter = b""
        self.version = -1
        self.calls: list[int] = []

    def load_version(self, version: int, adapter_dir: Path) -> None:
        self.adapter = (adapter_dir / "adapter.bin").read_bytes()
        self.version = version

    def __call__(self, wave: int, policy_version: int, slots: Sequence[int]) -> list[Solution]:
        assert policy_version == self.version, "sampled with another version than the one loaded"
        self.calls.append(wave)
        time.sleep(self.delay_s)
        return [self._solution(wave, slot) for slot in slots]

    def _solution(self, wave: int, slot: int) -> Solution:
        seed = solution_seed(self.config.seed, wave, slot)
        parent_id = previous_of(solution_id_of(wave, slot), self.config.improve.actions)
        parent_reward: float | None = None
        prompt_ids: tuple[int, ...] = (1, 2)
        if parent_id is not None:
            parent = self.store.get(parent_id)
            assert parent.reward is not None, "only what ended by itself is improved"
            parent_reward, prompt_ids = parent.reward.total, (1, 3, *parent.solution.response_ids)
        draw = hashlib.sha256(self.adapter + str((seed, prompt_ids) if parent_id else seed).encode()).digest()
        kind = ("graded", "graded", "graded", "error", "no_code", "no_submission", "timeout", "graded")[draw[0] % 8]
        code = None if kind == "no_code" else f"# {kind}\nprint({draw[1]})\n"
        return Solution(
            solution_id=solution_id_of(wave, slot),
            competition_id=self.config.competition_of_slot(slot),
            wave=wave,
            slot=slot,
            prompt_kind="improve" if parent_id else "solve",
            parent_id=parent_id,
            policy_version=self.version,
            seed=seed,
            prompt_ids=prompt_ids,
            response_ids=tuple(draw[:4]),
            log_probs=tuple(-b / 256 for b in draw[4:8]),
            finish_reason="stop",
            text=code or "sorry",
            plan="",
            code=code,
            generated_at=time.time(),
            generation_s=0.1,
            parent_reward=parent_reward,
        )


class FakeSandbox:
    """Runs nothing: the outcome is written in the program's first line. ``broken`` ids fail on infrastructure; what
    ``held`` says of is running until it says otherwise."""

    def __init__(
        self,
        delay_s: float = 0.0,
        broken: frozenset[str] = frozenset(),
        held: Callable[[str], bool] = lambda solution_id: False,
    ) -> None:
        self.delay_s = delay_s
        self.broken = broken
        self.held = held
        self.runs: list[str] = []

    def close(self) -> None: ...

    def run(
        self,
        source: str,
        inputs: Path,
        *,
        collect_to: Path,
        nonce: str = "",
        milestones: Sequence[str] = (),
        cancel: threading.Event | None = None,
        solution_id: str = "",
    ) -> Execution:
        self.runs.append(solution_id)
        if solution_id in self.broken:
            raise InfraError("the engine is gone")
        began = time.time()
        cancelled = cancel is not None and cancel.wait(self.delay_s)
        while cancel is not None and not cancelled and self.held(solution_id):
            cancelled = cancel.wait(0.02)
        kind = source.split("\n")[0].removeprefix("# ")
        if kind == "graded" and not cancelled:
            collect_to.parent.mkdir(parents=True, exist_ok=True)
            collect_to.write_text(source.split("(")[1].split(")")[0])
        example = experience(1, 0, kind).execution
        assert example is not None
        now = time.time()
        return dataclasses.replace(
            example,
            status="cancelled" if cancelled else example.status,
            milestones=tuple(milestones),
            duration_s=len(source) / 10,
            started_at=began,
            finished_at=now,
        )


@dataclasses.dataclass(frozen=True)
class FakeUpdate:
    version: int
    version_dir: Path
    metrics: dict[str, float]


class FakeLearner:
    """Each version follows from its parent and the batch's digest; applied exactly once, published by rename."""

    def __init__(self, run: RunDirectory, delay_s: float = 0.0) -> None:
        self.run = run
        self.delay_s = delay_s
        self.updates: list[str] = []
        self.stopped = threading.Event()
        if not run.version(0).exists():
            self._publish(0, b"warm start", "")

    def update(self, batch_id: str, batch_path: Path, digest: str, parent_version: int) -> FakeUpdate:
        number = parent_version + 1
        if not run_done(self.run, number):
            assert max(self.run.published_versions()) == parent_version
            assert batch_digest(read_batch(batch_path)) == digest
            if self.stopped.wait(self.delay_s):
                raise InfraError("the learner has ended")
            parent = (self.run.version(parent_version) / "adapter" / "adapter.bin").read_bytes()
            self._publish(number, hashlib.sha256(parent + digest.encode()).digest(), batch_id)
            self.updates.append(batch_id)
        manifest = json.loads((self.run.version(number) / "manifest.json").read_text())
        assert manifest == {"batch_id": batch_id}, "one version, one batch"
        return FakeUpdate(number, self.run.version(number), {"actor/ppo_kl": 0.01})

    def _publish(self, number: int, adapter: bytes, batch_id: str) -> None:
        partial = self.run.versions / f"{number:05d}.partial-{os.getpid()}-{time.monotonic_ns()}"
        (partial / "adapter").mkdir(parents=True)
        (partial / "adapter" / "adapter.bin").write_bytes(adapter)
        (partial / "manifest.json").write_text(json.dumps({"batch_id": batch_id}))
        (partial / "metrics.json").write_text(json.dumps({"actor/ppo_kl": 0.01}))
        (partial / "DONE").write_text("")
        partial.rename(self.run.version(number))


def run_done(run: RunDirectory, number: int) -> bool:
    return number in run.published_versions()


def fake_instrument(code: str, nonce: str) -> InstrumentedProgram:
    return InstrumentedProgram(code, "ast", nonce, ("import", "load"), (1, 2))


def fake_resources(
    run: RunDirectory, sandbox: FakeSandbox | None = None, delay_s: float = 0.0, tracker: Tracker | None = None
) -> Resources:
    """A run whose every part is a stand-in, for ``registered``."""
    config = run.load_config()
    policy = FakePolicy(run, config, delay_s)
    learner = FakeLearner(run, delay_s)
    return Resources(
        run=run,
        config=config,
        arenas={
            name: Arena(run.path, lambda path: Score(int(path.read_text()) / 256, True, True), lambda raw: 1 - raw)
            for name in config.competition.ids
        },
        agent=policy,
        load_version=policy.load_version,
        instrument=fake_instrument,
        sandbox=sandbox or FakeSandbox(delay_s),
        learner=learner,
        tracker=tracker or Tracker(None, {}, {}),
        abort=learner.stopped.set,
    )
