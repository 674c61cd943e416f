"""One batched pass for many tasks: each gets its own solution, the wave is sampled once, waits end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import InfraError
from mlrl_core.experience import solution_id_of
from mlrl_core.records import Solution
from tasks.agent import PolicyAgent
from tasks.prompting import Prompt
from tasks.sampling import Interrupted, WaveSampler
from tests.fakes import experience


class _Agent:
    def __init__(self, delay_s: float = 0.0, failures: int = 0) -> None:
        self.delay_s, self.failures, self.calls = delay_s, failures, 0

    def __call__(self, wave: int, policy_version: int, size: int) -> list[Solution]:
        self.calls += 1
        time.sleep(self.delay_s)
        if self.calls <= self.failures:
            raise InfraError("the server is gone")
        return [experience(wave, slot).solution for slot in range(size)]


def test_a_wave_is_sampled_once_for_all_its_tasks() -> None:
    agent = _Agent(0.2)
    sampler = WaveSampler(agent, lambda: False, 10)
    ids = [solution_id_of(1, slot) for slot in range(4)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda i: sampler.solution(1, 0, 4, i).solution_id, ids))
    assert got == ids
    assert agent.calls == 1
    sampler.solution(2, 1, 4, solution_id_of(2, 0))
    assert agent.calls == 2


def test_a_failed_pass_is_repeated_by_the_next_task_that_asks() -> None:
    agent = _Agent(failures=1)
    sampler = WaveSampler(agent, lambda: False, 10)
    with pytest.raises(InfraError):
        sampler.solution(1, 0, 4, solution_id_of(1, 0))
    assert sampler.solution(1, 0, 4, solution_id_of(1, 0)).slot == 0


def test_waiting_ends_at_the_deadline_and_at_once_when_stopped() -> None:
    sampler = WaveSampler(_Agent(1.5), lambda: False, 0.3)
    leader = threading.Thread(target=sampler.solution, args=(1, 0, 4, solution_id_of(1, 0)))
    leader.start()
    time.sleep(0.1)
    began = time.monotonic()
    with pytest.raises(InfraError, match="not sampled within"):
        sampler.solution(1, 0, 4, solution_id_of(1, 1))
    assert time.monotonic() - began < 1
    leader.join(5)
    with pytest.raises(Interrupted):
        WaveSampler(_Agent(), lambda: True, 10).solution(1, 0, 4, solution_id_of(1, 0))


def test_the_agent_keeps_the_samplers_own_numbers() -> None:
    from mlrl_core.generation.protocol import Generated, GenerationRequest

    class Fixed:
        def load_version(self, version: int, adapter_dir: Path) -> None: ...
        def close(self) -> None: ...
        def generate(self, requests: list[GenerationRequest], policy_version: int) -> list[Generated]:
            return [Generated(r.solution_id, (r.seed % 7, 9), (-0.5, -0.25), "stop", 1.5) for r in requests]

    config = load_config("nano", ["wave_size=3", "batch.size=3", "seed=5"])
    prompts = [
        Prompt("toy", "solve", (1, 2)),
        Prompt("toy", "improve", (1, 3, 5), "00003-001", 0.5),
        Prompt("other", "solve", (7,)),
    ]
    agent = PolicyAgent(
        config, Fixed(), lambda wave, size: prompts, lambda ids: f"a plan\n```python\nprint({ids[0]})\n```"
    )
    solutions = agent(4, 3, 3)
    assert [s.solution_id for s in solutions] == ["00004-000", "00004-001", "00004-002"]
    assert len({s.seed for s in solutions}) == 3
    first = solutions[0]
    assert (first.prompt_ids, first.log_probs, first.policy_version) == ((1, 2), (-0.5, -0.25), 3)
    assert first.plan == "a plan"
    assert first.code == f"print({first.seed % 7})\n"
    assert first.response_ids == (first.seed % 7, 9)
    kinds = [(s.competition_id, s.prompt_kind, s.parent_id, s.parent_reward, s.prompt_ids) for s in solutions]
    assert kinds == [(p.competition_id, p.kind, p.parent_id, p.parent_reward, p.ids) for p in prompts]
