"""Run one program in the sandbox."""

from __future__ import annotations

from mlrl_core.errors import InfraError
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.experience.launches import log_launch
from mlrl_core.experience.run_directory import wave_of
from mlrl_core.records import Execution, InstrumentedProgram
from tasks.decorator import mlrl_task
from tasks.resources import resources_of
from tasks.sampling import Interrupted

# Container start, killing and collecting, on top of the wait for a slot and the program's own limit.
_AROUND_S = 60.0


@mlrl_task(
    "execute {competition} {solution_id}",
    deadline_s=lambda config: config.sandbox.slot_wait_s + config.sandbox.time_limit_s + _AROUND_S,
    retries=2,
)
def execute(run_dir: str, competition: str, solution_id: str) -> str:
    """Publish the Execution. A timeout, a crash or a memory kill is a result, never retried. Returns the status.

    Where a cut has ended the wave, a program that hasn't started is ``cancelled`` without an Execution.
    """
    resources = resources_of(run_dir)
    wave = wave_of(solution_id)
    control = resources.control(wave)
    work = WorkFolder(resources.run, solution_id)
    execution = work.get(Execution)
    if execution is None:
        program = work.require(InstrumentedProgram)
        if control.halted.is_set():
            return "cancelled"
        resources.flights.begin(solution_id)
        log_launch(resources.run, solution_id, "started")
        execution = resources.sandbox.run(
            program.source,
            resources.arenas[competition].inputs,
            collect_to=work.submission,
            nonce=program.nonce,
            milestones=program.milestones,
            cancel=control.kill,
            solution_id=solution_id,
        )
        if execution.status == "infra_error":
            raise InfraError(execution.detail or "the sandbox failed without saying why")
        if execution.status == "cancelled" and not control.halted.is_set():
            raise Interrupted
        work.put(execution)
    return execution.status
