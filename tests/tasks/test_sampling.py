"""One batched pass for many tasks: each gets its own solution, the wave is sampled once, waits end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
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

FOUR = (0, 1, 2, 3)


class _Agent:
    def __init__(self, delay_s: float = 0.0, failures: int = 0) -> None:
        self.delay_s, self.failures, self.calls = delay_s, failures, 0

    def __call__(self, wave: int, policy_version: int, slots: Sequence[int]) -> list[Solution]:
        self.calls += 1
        time.sleep(self.delay_s)
        if self.calls <= self.failures:
            raise InfraError("the server is gone")
        return [experience(wave, slot).solution for slot in slots]


def test_a_wave_is_sampled_once_for_all_its_tasks() -> None:
    agent = _Agent(0.2)
    sampler = WaveSampler(agent, lambda: False, 10)
    ids = [solution_id_of(1, slot) for slot in range(4)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda i: sampler.solution(1, 0, FOUR, i).solution_id, ids))
    assert got == ids
    assert agent.calls == 1
    sampler.solution(2, 1, FOUR, solution_id_of(2, 0))
    assert agent.calls == 2


def test_other_slots_of_a_wave_are_another_pass() -> None:
    agent = _Agent()
    sampler = WaveSampler(agent, lambda: False, 10)
    got = [sampler.solution(1, 0, slots, solution_id_of(1, slots[1])).slot for slots in ((0, 2), (1, 3), (1, 3))]
    assert got == [2, 3, 3]
    assert agent.calls == 2


def test_a_failed_pass_is_repeated_by_the_next_task_that_asks() -> None:
    agent = _Agent(failures=1)
    sampler = WaveSampler(agent, lambda: False, 10)
    with pytest.raises(InfraError):
        sampler.solution(1, 0, FOUR, solution_id_of(1, 0))
    assert sampler.solution(1, 0, FOUR, solution_id_of(1, 0)).slot == 0


def test_waiting_ends_at_the_deadline_and_at_once_when_stopped() -> None:
    sampler = WaveSampler(_Agent(4), lambda: False, 0.3)
    began = time.monotonic()
    for slot in (0, 1):
        with pytest.raises(InfraError, match="not sampled within"):
            sampler.solution(1, 0, FOUR, solution_id_of(1, slot))
    assert time.monotonic() - began < 3
    sampler.close(20)
    assert sampler.solution(1, 0, FOUR, solution_id_of(1, 1)).slot == 1  # it came too late, not never
    with pytest.raises(Interrupted):
        WaveSampler(_Agent(), lambda: True, 10).solution(1, 0, FOUR, solution_id_of(1, 0))


def test_a_solution_is_given_out_before_the_wave_is_complete() -> None:
    others = threading.Event()

    def agent(wave: int, policy_version: int, slots: Sequence[int]) -> Iterator[Solution]:
        yield experience(wave, 1).solution
        assert others.wait(10)
        yield experience(wave, 0).solution

    sampler = WaveSampler(agent, lambda: False, 10)
    assert sampler.solution(1, 0, (0, 1), solution_id_of(1, 1)).slot == 1
    others.set()
    assert sampler.solution(1, 0, (0, 1), solution_id_of(1, 0)).slot == 0


def test_waves_are_sampled_one_after_the_other() -> None:
    active, most = 0, 0

    def agent(wave: int, policy_version: int, slots: Sequence[int]) -> Iterator[Solution]:
        nonlocal active, most
        active += 1
        most = max(most, active)
        time.sleep(0.2)
        yield experience(wave, 0).solution
        active -= 1

    sampler = WaveSampler(agent, lambda: False, 10)
    with ThreadPoolExecutor(3) as pool:
        got = list(pool.map(lambda wave: sampler.solution(wave, 0, (0,), solution_id_of(wave, 0)).wave, (1, 2, 3)))
    assert got == [1, 2, 3]
    assert most == 1


def test_the_agent_keeps_the_samplers_own_numbers() -> None:
    from mlrl_core.generation.protocol import Generated, GenerationRequest

    class Fixed:
        def load_version(self, version: int, adapter_dir: Path) -> None: ...
        def close(self) -> None: ...
        def metrics(self) -> dict[str, float]:
            return {}

        def generate(self, requests: Sequence[GenerationRequest], policy_version: int) -> Iterator[Generated]:
            """In another order than asked; one version could not be loaded."""
            used = min(policy_version, 3)
            return (Generated(r.solution_id, (r.seed % 7, 9), (-0.5, -0.25), "stop", 1.5, used) for r in requests[::-1])

    config = load_config("nano", ["wave_size=3", "batch.size=3", "seed=5"])
    prompts = [
        Prompt("toy", "solve", (1, 2)),
        Prompt("toy", "improve", (1, 3, 5), "00003-001", 0.5),
        Prompt("other", "solve", (7,)),
    ]
    agent = PolicyAgent(
        config, Fixed(), lambda wave, slots: prompts, lambda ids: f"a plan\n```python\nprint({ids[0]})\n```"
    )
    solutions = sorted(agent(4, 4, range(3)), key=lambda each: each.slot)
    assert [s.solution_id for s in solutions] == ["00004-000", "00004-001", "00004-002"]
    assert len({s.seed for s in solutions}) == 3
    first = solutions[0]
    assert (first.prompt_ids, first.log_probs, first.policy_version) == ((1, 2), (-0.5, -0.25), 3)
    assert first.plan == "a plan"
    assert first.code == f"print({first.seed % 7})\n"
    assert first.response_ids == (first.seed % 7, 9)
    kinds = [(s.competition_id, s.prompt_kind, s.parent_id, s.parent_reward, s.prompt_ids) for s in solutions]
    assert kinds == [(p.competition_id, p.kind, p.parent_id, p.parent_reward, p.ids) for p in prompts]
