"""Insert the milestone prints into one program."""

from __future__ import annotations

from mlrl_core.experience.handover import WorkFolder
from mlrl_core.instrumentation import new_nonce
from mlrl_core.records import InstrumentedProgram, Solution
from tasks.decorator import mlrl_task
from tasks.resources import resources_of


@mlrl_task("instrument {competition} {solution_id}", deadline_s=lambda config: 60.0, retries=2)
def instrument(run_dir: str, competition: str, solution_id: str) -> str:
    """Publish the InstrumentedProgram. Returns the inserter that was used (``none`` = run as written)."""
    resources = resources_of(run_dir)
    work = WorkFolder(resources.run, solution_id)
    program = work.get(InstrumentedProgram)
    if program is None:
        code = work.require(Solution).code
        if code is None:
            raise ValueError(f"{solution_id} has no program to instrument")
        # The nonce is fresh: a program must not be able to print milestones that it has learnt by heart.
        program = resources.instrument(code, new_nonce())
        work.put(program)
    return program.inserter
