"""The flows with stand-ins for everything but Prefect and the disk. Files are checked first, states second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlrl_core.errors import InfraError
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.launches import read_launches
from mlrl_core.experience.state import read_state
from tasks.resources import registered
from tests.fakes import FakeLearner, FakeSandbox, fake_resources
from tests.flows.conftest import make_run

pytestmark = pytest.mark.usefixtures("prefect_server")


def _adapters(run: RunDirectory) -> list[bytes]:
    return [(run.version(n) / "adapter" / "adapter.bin").read_bytes() for n in run.published_versions()]


def test_a_run_ends_with_every_solution_and_version(run: RunDirectory) -> None:
    from flows.train import train

    resources = fake_resources(run)
    with registered(resources):
        assert train(run_dir=str(run.path)) is None
    store = ExperienceStore(run)
    assert store.waves() == [1, 2, 3]
    assert run.published_versions() == [0, 1, 2, 3]
    for wave in store.waves():
        rows = store.read(wave)
        assert [row.solution.slot for row in rows] == list(range(6))
        assert {row.solution.policy_version for row in rows} == {wave - 1}
        assert all((row.program is None) == (row.outcome == "no_code") for row in rows)
        assert all(row.reward is not None and row.reward.outcome == row.outcome for row in rows)
        launches = read_launches(run, wave)
        assert set(launches) == set(store.ids(wave))
        assert all("ended" in times for times in launches.values())
        assert run.batch(wave).exists()
    assert {row.outcome for wave in store.waves() for row in store.read(wave)} >= {"graded"}
    assert not list((run.path / "work").rglob("*.*"))
    state = read_state(run)
    assert (state.status, state.next_step, len(state.steps)) == ("finished", 4, 3)
    assert isinstance(resources.learner, FakeLearner)
    assert resources.learner.updates == ["00001", "00002", "00003"]


def test_task_runs_carry_names_a_person_can_find(run: RunDirectory, prefect_server: str) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags

    from flows.train import train

    with registered(fake_resources(run)):
        train(run_dir=str(run.path))
    with get_client(sync_client=True) as client:
        mine = FlowRunFilter(tags=FlowRunFilterTags(all_=[f"run:{run.key}"]))
        flow_names = {each.name for each in client.read_flow_runs(flow_run_filter=mine)}
        names = {each.name for each in client.read_task_runs(flow_run_filter=mine, limit=200)}
    assert flow_names >= {"train run", "rollout run wave 1", "rollout run wave 3"}
    assert {"generate toy 00002-003", "score toy 00001-000", "batch 1", "update 3"} <= names
    assert any(name.startswith("execute toy ") for name in names)


def test_an_infrastructure_fault_becomes_a_row_and_the_wave_goes_on(run: RunDirectory) -> None:
    from flows.train import train

    resources = fake_resources(run)
    solutions = []
    resources.load_version(0, run.version(0) / "adapter")
    solutions = [s.solution_id for s in resources.agent(1, 0, range(6)) if s.code]
    sandbox = FakeSandbox(broken=frozenset(solutions[:1]))
    with registered(fake_resources(run, sandbox)):
        train(run_dir=str(run.path))
    (lost,) = [row for row in ExperienceStore(run).read(1) if row.outcome == "infra_error"]
    assert lost.solution.solution_id == solutions[0]
    assert lost.reward is None
    assert lost.detail is not None
    assert "the engine is gone" in lost.detail
    assert sandbox.runs.count(solutions[0]) == 3  # two retries
    import polars as pl

    assert solutions[0] not in set(pl.read_parquet(run.batch(1))["experience_id"])
    assert run.published_versions() == [0, 1, 2, 3]


def test_a_broken_machine_stops_the_run_and_a_resume_tries_again(run: RunDirectory) -> None:
    from flows.train import train

    everything = frozenset(f"00001-{slot:03d}" for slot in range(6))
    with registered(fake_resources(run, FakeSandbox(broken=everything))), pytest.raises(InfraError, match="of 6"):
        train(run_dir=str(run.path))
    assert read_state(run).status == "failed"
    assert not any(row.outcome == "infra_error" for row in ExperienceStore(run).read(1))
    with registered(fake_resources(run)):
        train(run_dir=str(run.path))
    assert run.published_versions() == [0, 1, 2, 3]


def test_a_finished_run_is_left_alone(run: RunDirectory) -> None:
    from flows.train import train

    with registered(fake_resources(run)):
        train(run_dir=str(run.path))
    before = {p: p.read_bytes() for p in run.path.rglob("*.parquet")}
    again = fake_resources(run)
    with registered(again):
        train(run_dir=str(run.path))
    assert isinstance(again.learner, FakeLearner)
    assert again.learner.updates == []
    assert before == {p: p.read_bytes() for p in run.path.rglob("*.parquet")}


def test_same_seed_same_adapters_in_any_directory(tmp_path: Path) -> None:
    from flows.train import train

    made = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = make_run(tmp_path / name, f"seed={seed}")
        with registered(fake_resources(run)):
            train(run_dir=str(run.path))
        made.append(_adapters(run))
    assert made[0] == made[1]
    assert made[0][1:] != made[2][1:]


def test_state_is_json_for_people(run: RunDirectory) -> None:
    from flows.train import train

    with registered(fake_resources(run)):
        train(run_dir=str(run.path))
    assert json.loads(run.state_path.read_text())["status"] == "finished"
