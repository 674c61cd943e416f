"""Evaluation with stand-ins for everything but Prefect and the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.errors import MlrlError
from mlrl_core.evaluation.directory import MARK, evaluation_of
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.plans import read_plan
from tasks.resources import registered
from tests.fakes import fake_resources
from tests.flows.conftest import make_run

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def trained(tmp_path: Path) -> RunDirectory:
    run = make_run(tmp_path / "run")
    fake_resources(run)  # publishes version 0
    return run


def test_fresh_solutions_of_one_version_and_what_they_are_worth(trained: RunDirectory) -> None:
    from flows.evaluate import evaluate

    folder = evaluation_of(trained, 0, 5)
    assert folder.path == trained.path / "evaluation" / "00000"
    with registered(fake_resources(folder)):
        metrics = evaluate(run_dir=str(trained.path), version=0, solutions=5)
    rows = ExperienceStore(folder).read(1)
    assert len(rows) == 5
    assert {row.solution.policy_version for row in rows} == {0}
    valid = sum(row.outcome == "graded" for row in rows)
    assert metrics["eval/solve/valid"] == pytest.approx(valid / 5)
    assert ExperienceStore(folder).waves() == [1]
    assert not trained.experiences.exists(), "the run itself is untouched"
    with registered(fake_resources(folder)):  # complete: summarised again, nothing sampled
        assert evaluate(run_dir=str(trained.path), version=0, solutions=5) == metrics


def test_what_can_be_improved_is_improved(tmp_path: Path) -> None:
    from flows.evaluate import evaluate

    run = make_run(tmp_path / "run", "improve.improve_prob=0.5")
    fake_resources(run)
    folder = evaluation_of(run, 0, 6)
    with registered(fake_resources(folder)):
        evaluate(run_dir=str(run.path), version=0, solutions=6)
    first = ExperienceStore(folder).read(1)
    plan = read_plan(folder, 2)
    assert plan is not None
    assert [slot.parent_id for slot in plan] == [
        row.solution.solution_id for row in first if row.outcome == "graded" and row.solution.code
    ]
    assert len(ExperienceStore(folder).read(2)) == len(plan)


def test_a_run_of_two_actions_is_evaluated_by_what_it_trains(tmp_path: Path) -> None:
    """Failures are improved as well, and the better of both counts."""
    from flows.evaluate import evaluate

    run = make_run(tmp_path / "run", "improve.improve_prob=0.5", "improve.episode=two_step")
    fake_resources(run)
    folder = evaluation_of(run, 0, 7)
    assert folder.load_config().improve.episode == "independent"
    with registered(fake_resources(folder)):
        metrics = evaluate(run_dir=str(run.path), version=0, solutions=7)
    first, plan = ExperienceStore(folder).read(1), read_plan(folder, 2)
    assert plan is not None
    assert [slot.parent_id for slot in plan] == [row.solution.solution_id for row in first]
    assert len(ExperienceStore(folder).read(2)) == 7
    assert 0 < metrics["eval/solve/valid"] < 1


def test_several_competitions_are_told_apart(tmp_path: Path) -> None:
    from flows.evaluate import evaluate

    two = ["policy.model=some/model", "warmstart.demonstrations=0", "competition.others=['other']"]
    run = make_run(tmp_path / "run", *two, "improve.improve_prob=0.5")
    fake_resources(run)
    folder = evaluation_of(run, 0, 8)
    with registered(fake_resources(folder)):
        metrics = evaluate(run_dir=str(run.path), version=0, solutions=8)
    rows = ExperienceStore(folder).read(1)
    for name in ("toy", "other"):
        mine = [row for row in rows if row.solution.competition_id == name]
        assert metrics[f"eval/{name}/solve/solutions"] == len(mine) == 4
        assert metrics[f"eval/{name}/solve/valid"] == sum(row.outcome == "graded" for row in mine) / 4
    plan = read_plan(folder, 2)
    assert plan is not None
    parents = {slot.parent_id: slot.competition_id for slot in plan if slot.parent_id}
    assert parents == {
        row.solution.solution_id: row.solution.competition_id
        for row in rows
        if row.outcome == "graded" and row.solution.code
    }
    assert "eval/best_raw" not in metrics


def test_mistakes_are_one_line(trained: RunDirectory) -> None:
    from mlrl_core.commands.train import train

    with pytest.raises(MlrlError, match="has no version 9"):
        evaluation_of(trained, 9, 5)
    folder = evaluation_of(trained, 0, 5)
    with pytest.raises(MlrlError, match="is an evaluation with 5 solutions"):
        evaluation_of(trained, 0, 6)
    assert (folder.path / MARK).exists()
    with pytest.raises(MlrlError, match="is an evaluation, nothing to train"):
        train(None, None, None, folder.path, None, (), False)
