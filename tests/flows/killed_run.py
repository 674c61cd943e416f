"""A training run with stand-ins in a process of its own, for tests that kill it.

``python -m ... <run> <delay_s> [<version>]``: with a version, every third program after the first wave runs until it is
published.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlrl_core.experience import RunDirectory


def main() -> int:
    run, delay_s = RunDirectory.open(Path(sys.argv[1])), float(sys.argv[2])
    from flows.train import train
    from tasks.resources import registered
    from tests.fakes import FakeSandbox, fake_resources

    last = int(sys.argv[3]) if len(sys.argv) > 3 else 0

    def held(solution_id: str) -> bool:
        wave, slot = map(int, solution_id.split("-"))
        return wave > 1 and slot % 3 == 0 and last not in run.published_versions()

    with run.owned(), registered(fake_resources(run, FakeSandbox(delay_s, held=held), delay_s)):
        state = train(run_dir=str(run.path), return_state=True)
    print(state.type.value, flush=True)
    return 0 if state.is_completed() else 3


if __name__ == "__main__":
    sys.exit(main())
