"""What the one task decorator promises, for every stage there is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import InfraError, MlrlError
from tasks.batch import batch
from tasks.decorator import MARGIN_S, StageTask, is_infra_error, mlrl_task
from tasks.execute import execute
from tasks.generate import generate
from tasks.instrument import instrument
from tasks.score import score
from tasks.update import update

ROOT = Path(__file__).parents[2]
STAGES: list[StageTask] = [generate, instrument, execute, score, batch, update]  # type: ignore[type-arg]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
@pytest.mark.parametrize("profile", ["nano", "default"])
def test_every_time_limit_is_above_the_stages_own_deadline(stage: StageTask, profile: str) -> None:  # type: ignore[type-arg]
    from prefect.cache_policies import NO_CACHE

    config = load_config(profile)
    made = stage.for_run(config)
    assert made.timeout_seconds is not None
    assert made.timeout_seconds >= stage.deadline_s(config) + MARGIN_S
    assert made.retry_condition_fn is is_infra_error
    assert made.cache_policy == NO_CACHE
    assert made.persist_result is False
    assert isinstance(made.task_run_name, str)
    assert stage.name in made.task_run_name


def test_the_execute_limit_covers_the_wait_for_a_slot() -> None:
    config = load_config("nano", ["sandbox.time_limit_s=900", "sandbox.slot_wait_s=100"])
    assert execute.for_run(config).timeout_seconds >= 900 + 100 + 60  # type: ignore[operator]


def test_an_async_stage_is_refused() -> None:
    async def wait() -> None: ...

    with pytest.raises(TypeError, match="synchronous"):
        mlrl_task("wait", deadline_s=lambda config: 1.0, retries=0)(wait)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InfraError("engine"), True),
        (MlrlError("bad batch"), False),
        (KeyError("bug"), False),
        (TimeoutError("late"), False),
        (None, False),
    ],
)
def test_only_infrastructure_faults_are_retried(error: Exception | None, expected: bool) -> None:
    from prefect.states import Completed, Failed

    state = Completed(data=1) if error is None else Failed(data=error)
    assert is_infra_error(generate._task, None, state) is expected  # type: ignore[arg-type]


def test_tasks_and_flows_are_synchronous_and_the_library_knows_no_prefect() -> None:
    for folder in ("tasks", "flows", "mlrl_core"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            imported = {
                name.split(".")[0]
                for node in ast.walk(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
            }
            if folder == "mlrl_core":
                assert "prefect" not in imported, path
            decorated = [
                node
                for node in ast.walk(tree)
                if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list and folder != "mlrl_core"
            ]
            assert not decorated, path
            assert "vllm" not in imported or path.stem == "mlrl_vllm_cpu", path  # which only vLLM itself imports
