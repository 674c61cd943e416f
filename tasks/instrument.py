"""Insert the milestone prints into one program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.generation.protocol import Generator
from mlrl_core.instrumentation import FrozenModel, new_nonce
from mlrl_core.instrumentation import instrument as instrument_program
from mlrl_core.records import InstrumentedProgram, Solution
from tasks.decorator import mlrl_task
from tasks.resources import resources_of

# A wave's programs wait for one model; the wait for it has this end.
_MODEL_LIMIT_S = 1800.0


def open_instrumenter(
    config: RunConfig, backbone: Path, generator: Generator | None = None
) -> Callable[[str, str], InstrumentedProgram]:
    """From a program and its nonce to the instrumented program. ``backbone``: the policy's model without adapters,
    which also instruments where the configuration names no other; where servers sample, it is theirs.

    Raises MlrlError where the model's folder holds none.
    """
    settings = config.instrument
    model: FrozenModel | None = None
    if settings.asks_model and not settings.model and config.generation.backend == "vllm":
        from mlrl_core.generation.vllm.frozen import ServedFrozenModel
        from mlrl_core.generation.vllm.generator import VllmGenerator

        assert isinstance(generator, VllmGenerator)
        model = ServedFrozenModel(generator.pool, backbone, _MODEL_LIMIT_S)
    elif settings.asks_model:
        from mlrl_core.generation.frozen import TransformersModel

        folder = Path(settings.model).expanduser() if settings.model else backbone
        if not (folder / "config.json").is_file():
            raise MlrlError(f"instrument.model = {settings.model}: the folder holds no model of transformers")
        model = TransformersModel(folder, config.policy.dtype, _MODEL_LIMIT_S)

    def instrumented(code: str, nonce: str) -> InstrumentedProgram:
        limit = config.sampling.max_new_tokens
        return instrument_program(code, settings.inserter, nonce, model, settings.on_failure, limit)

    return instrumented


@mlrl_task(
    "instrument {competition} {solution_id}",
    deadline_s=lambda config: 60.0 + (_MODEL_LIMIT_S if config.instrument.asks_model else 0.0),
    retries=2,
)
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
