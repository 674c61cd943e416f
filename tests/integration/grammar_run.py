"""A training run with every real part, except that the nano grammar writes the programs: an untrained policy writes
none. In a process of its own, for tests that stop it: ``python -m tests.integration.grammar_run <run>``."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from mlrl_core.agent import parse_response
from mlrl_core.experience import RunDirectory, solution_id_of, solution_seed
from mlrl_core.records import Solution


def main() -> None:
    run = RunDirectory.open(Path(sys.argv[1]))
    from flows.train import train
    from mlrl_core.reporting.progress import Silent
    from tasks.opening import open_resources
    from tasks.resources import Resources
    from tasks.sampling import WaveSampler

    def write(resources: Resources) -> None:
        from mlrl_core.nano.facts import read_facts
        from mlrl_core.nano.grammar import write_demonstration

        config = resources.config
        facts = read_facts(config.competition.id, "rmsle", resources.arenas[config.competition.id].inputs)

        def agent(wave: int, policy_version: int, slots: Sequence[int]) -> list[Solution]:
            return [one(wave, slot, policy_version) for slot in slots]

        def one(wave: int, slot: int, policy_version: int) -> Solution:
            seed = solution_seed(config.seed, wave, slot)
            text = write_demonstration(facts, Random(seed)).response
            parsed = parse_response(text)
            ids = tuple(3 + byte % 200 for byte in text.encode()[:50])
            return Solution(
                solution_id=solution_id_of(wave, slot),
                competition_id=config.competition.id,
                wave=wave,
                slot=slot,
                prompt_kind="solve",
                parent_id=None,
                policy_version=policy_version,
                seed=seed,
                prompt_ids=(3, 4, 5),
                response_ids=ids,
                log_probs=(-5.0,) * len(ids),
                finish_reason="stop",
                text=text,
                plan=parsed.plan,
                code=parsed.code,
                generated_at=time.time(),
                generation_s=0.1,
            )

        resources.sampler = WaveSampler(agent, resources.cancel.is_set, 60)

    with run.owned(), open_resources(run, threading.Event(), Silent()) as resources:
        write(resources)
        state = train(run_dir=str(run.path), return_state=True)
    print(state.type.value, flush=True)
    sys.stdout.flush()
    os._exit(0 if state.is_completed() else 3)  # as the command does when it was interrupted


if __name__ == "__main__":
    main()
