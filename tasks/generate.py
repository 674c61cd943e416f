"""Sample one solution."""

from __future__ import annotations

from mlrl_core.experience.handover import WorkFolder
from mlrl_core.experience.run_directory import wave_of
from mlrl_core.records import Solution
from tasks.decorator import mlrl_task
from tasks.resources import resources_of


@mlrl_task(
    "generate {competition} {solution_id}", deadline_s=lambda config: config.generation.pass_deadline_s, retries=3
)
def generate(run_dir: str, competition: str, solution_id: str) -> str:
    """Publish the Solution. Returns ``program``, or ``no_code`` where there is nothing to run."""
    resources = resources_of(run_dir)
    work = WorkFolder(resources.run, solution_id)
    solution = work.get(Solution)
    if solution is None:
        wave = wave_of(solution_id)
        slots = resources.sampled_with(solution_id)
        solution = resources.sampler.solution(wave, resources.version_of(wave), slots, solution_id)
        work.put(solution)
    return "no_code" if solution.code is None else "program"
