"""Further hostile programs (tests/cases/hostile), in the backends that contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.sandbox.host import FIRST_UID
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, Opener
from tests.mlrl_core.sandbox.expectations import PROGRAMS, broken_promises, limit_of, programs, stretch
from tests.mlrl_core.sandbox.world import ANSWERS, SECRET, World

HOSTILE = {program.name: program for program in programs(PROGRAMS.parent / "hostile")}


@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("nothing_left")
def test_program_ends_as_promised(
    backend: str, name: str, world: World, open_for_tests: Opener, tmp_path: Path
) -> None:
    program, stretched = HOSTILE[name], stretch()
    limit = limit_of(program, PROGRAM_LIMITS.time_limit_s) * stretched
    sandbox = open_for_tests(backend, env=world.env, time_limit_s=limit)
    with world.witness(FIRST_UID):
        result = sandbox.run(program.source, world.inputs, collect_to=tmp_path / "submission.csv")
    said = (result.stdout.tail[-2000:], result.stderr.tail[-2000:])
    assert broken_promises(program, result, limit, stretched) == [], said
    assert not any(token in text for token in (SECRET, ANSWERS) for text in said)
