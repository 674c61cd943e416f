"""Whole runs in which a solution and its improvement are one episode, with stand-ins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.cuts import require_cut, wave_ids
from mlrl_core.learner.batch_file import BatchRow, read_batch
from mlrl_core.records import Experience
from tasks.resources import registered
from tests.fakes import FakeSandbox, fake_resources
from tests.flows.conftest import make_run

pytestmark = pytest.mark.usefixtures("prefect_server")
TWO_STEP = ("improve.improve_prob=0.5", "improve.episode=two_step")


def _train(
    run: RunDirectory, held: Callable[[str], bool] = lambda solution_id: False, broken: frozenset[str] = frozenset()
) -> FakeSandbox:
    from flows.train import train

    sandbox = FakeSandbox(held=held, broken=broken)
    with registered(fake_resources(run, sandbox)):
        train(run_dir=str(run.path))
    return sandbox


def _rows(run: RunDirectory) -> dict[str, Experience]:
    store = ExperienceStore(run)
    return {row.solution.solution_id: row for wave in store.waves() for row in store.read(wave)}


def _batches(run: RunDirectory) -> dict[int, list[BatchRow]]:
    return {step: read_batch(run.batch(step)) for step in run.published_versions()[1:]}


def _check(run: RunDirectory) -> None:
    """One row for each launch, closed once; batches hold whole episodes, each once, with each action's own numbers."""
    config, rows, batches = run.load_config(), _rows(run), _batches(run)
    steps = list(batches)
    assert sorted(rows) == sorted(each for step in steps for each in wave_ids(run, config, step))
    closed = [each for step in steps for each in require_cut(run, step).closed]
    assert len(closed) == len(set(closed))
    assert len(rows) - len(closed) == require_cut(run, steps[-1]).carried
    used = [row.experience_id for batch in batches.values() for row in batch]
    assert len(used) == len(set(used))
    assert set(used) <= set(closed)
    for step, batch in batches.items():
        assert [row.experience_id for row in batch] == list(require_cut(run, step).admitted or ())
        for solve, improve in zip(batch[::2], batch[1::2], strict=True):
            assert (solve.next_id, improve.next_id) == (improve.experience_id, None)
            assert (solve.asked, improve.asked) == ("solve", "improve" if solve.outcome == "graded" else "mend")
            assert rows[improve.experience_id].solution.parent_id == solve.experience_id
            assert (solve.inclusion, solve.available_s) == (improve.inclusion, improve.available_s)
        for row in batch:
            mine = rows[row.experience_id]
            assert mine.reward is not None
            assert (row.reward, row.policy_version) == (mine.reward.total, mine.solution.policy_version)
            assert row.duration_s == (mine.execution.duration_s if mine.execution else 0.0)
            assert row.rollout_log_probs == mine.solution.log_probs
    assert not list((run.path / "work").rglob("*.*"))


def test_every_solution_is_improved_once_all_of_its_wave_have_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *TWO_STEP)
    _train(run)
    _check(run)
    rows = _rows(run)
    for wave in (1, 2, 3):
        mine = [row for row in rows.values() if row.solution.wave == wave]
        solved, improved = mine[::2], mine[1::2]
        assert max(row.finished_at for row in solved) <= min(row.solution.generated_at for row in improved)
        for before, after in zip(solved, improved, strict=True):
            assert before.reward is not None
            assert (before.solution.prompt_kind, before.solution.parent_id) == ("solve", None)
            assert (after.solution.prompt_kind, after.solution.parent_id) == ("improve", before.solution.solution_id)
            assert after.solution.parent_reward == before.reward.total
            assert after.solution.policy_version == wave - 1
        batch = _batches(run)[wave]
        assert len(batch) == 6
        facts = json.loads(run.batch_facts(wave).read_text())["metrics"]
        assert facts["episode/return_mean"] == pytest.approx(sum(row.reward for row in batch) / 3)
    failed = {row.solution.solution_id for row in rows.values() if row.outcome != "graded"}
    assert failed & {row.solution.parent_id for row in rows.values()}, "failures are improved as well"


def test_same_seed_same_adapters(tmp_path: Path) -> None:
    adapters = []
    for name in ("a", "b"):
        run = make_run(tmp_path / name, *TWO_STEP)
        _train(run)
        adapters.append([(run.version(n) / "adapter" / "adapter.bin").read_bytes() for n in range(4)])
    assert adapters[0] == adapters[1]


@pytest.mark.parametrize("lost_action", [0, 1])
def test_an_episode_that_loses_an_action_is_not_learned_from(tmp_path: Path, lost_action: int) -> None:
    calm = make_run(tmp_path / "calm", *TWO_STEP)
    _train(calm)
    lost = next(
        each
        for each, row in _rows(calm).items()
        if row.solution.wave == 1 and row.program and row.solution.slot % 2 == lost_action
    )
    run = make_run(tmp_path / "run", *TWO_STEP)
    sandbox = _train(run, broken=frozenset([lost]))
    assert sandbox.runs.count(lost) == 3  # two retries
    _check(run)
    rows, episode = _rows(run), [f"{lost[:-1]}{int(lost[-1]) // 2 * 2 + action}" for action in (0, 1)]
    assert rows[lost].outcome == "infra_error"
    assert not set(episode) & {row.experience_id for row in _batches(run)[1]}
    assert set(episode) <= set(require_cut(run, 1).closed)
    assert len(_batches(run)[1]) == 4
    if lost_action == 0:
        after = rows[episode[1]]
        assert (after.outcome, after.solution.prompt_kind, after.solution.prompt_ids) == ("infra_error", "improve", ())
        assert after.detail == f"its episode ended with {lost}"
        assert episode[1] not in sandbox.runs
    else:  # what the first action earned is known and stays; its return is not
        assert rows[episode[0]].reward is not None


@pytest.mark.parametrize("policy", ["window", "first_k_discard"])
def test_a_cut_ends_improvements_and_drops_their_episodes(tmp_path: Path, policy: str) -> None:
    settings = {"window": ("batch.window_s=2",), "first_k_discard": ("batch.size=4",)}[policy]
    run = make_run(
        tmp_path / "run",
        f"batch.batch_policy={policy}",
        "batch.duration_weighting=inverse_inclusion",
        "steps=2",
        *TWO_STEP,
        *settings,
    )
    sandbox = _train(run, lambda each: each.endswith("-001"))
    _check(run)
    rows = _rows(run)
    held = [rows[each] for each in sandbox.runs if each.endswith("-001")]
    assert {row.outcome for row in held} <= {"cancelled"}
    for step, batch in _batches(run).items():
        cut = require_cut(run, step)
        assert (len(cut.closed), cut.carried) == (6, 0)
        assert len(batch) in ((4, 6) if policy == "window" else (4,))
        assert all(row.available_s is not None and 0 < row.inclusion <= 1 for row in batch)
        for row in held:
            solution_id = row.solution.solution_id
            assert not {solution_id, f"{solution_id[:-1]}0"} & {each.experience_id for each in batch}


def test_improvements_that_take_long_are_carried_over_with_their_solutions(tmp_path: Path) -> None:
    carry = ("batch.batch_policy=first_k_carry", "batch.size=2", "steps=4", *TWO_STEP)
    calm = make_run(tmp_path / "calm", *carry)
    _train(calm)
    slow = next(
        each for each, row in _rows(calm).items() if row.solution.wave == 2 and row.program and row.solution.slot % 2
    )
    run = make_run(tmp_path / "run", *carry)
    _train(run, lambda each: each == slow and 3 not in run.published_versions())
    _check(run)
    batches = _batches(run)
    assert [len(batch) for batch in batches.values()] == [2, 2, 2, 2]
    assert [len(wave_ids(run, run.load_config(), wave)) for wave in (1, 2, 3, 4)] == [2, 6, 2, 2]
    used = {row.experience_id: row for row in batches[4]}
    assert used[slow].policy_version == 1
    first = f"{slow[:-1]}{int(slow[-1]) - 1}"
    assert used[first].next_id == slow
