"""What each batch policy does with programs that take long, in whole runs with stand-ins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.cuts import CutRecord, require_cut, wave_ids, write_cut
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.experience.launches import log_launch
from mlrl_core.learner.batch_file import BatchRow, read_batch
from mlrl_core.records import Experience, Solution
from tasks.resources import registered
from tests.fakes import FakeSandbox, fake_instrument, fake_resources
from tests.flows.conftest import make_run

pytestmark = pytest.mark.usefixtures("prefect_server")
ROOT = Path(__file__).parents[2]
CARRY = ("batch.batch_policy=first_k_carry", "batch.size=3", "steps=4")


def _train(run: RunDirectory, held: Callable[[str], bool] = lambda solution_id: False) -> FakeSandbox:
    from flows.train import train

    sandbox = FakeSandbox(held=held)
    with registered(fake_resources(run, sandbox)):
        train(run_dir=str(run.path))
    return sandbox


def _batches(run: RunDirectory) -> dict[int, list[BatchRow]]:
    return {step: read_batch(run.batch(step)) for step in run.published_versions()[1:]}


def _rows(run: RunDirectory) -> dict[str, Experience]:
    store = ExperienceStore(run)
    return {row.solution.solution_id: row for wave in store.waves() for row in store.read(wave)}


def _check_every_launch_is_accounted_for(run: RunDirectory) -> None:
    """One row for each launch, each in one batch at most, each closed once: at a cut, or by the end of the run."""
    config, steps = run.load_config(), run.published_versions()[1:]
    launched = [each for step in steps for each in wave_ids(run, config, step)]
    rows = _rows(run)
    assert sorted(rows) == sorted(launched)
    used = Counter(row.experience_id for batch in _batches(run).values() for row in batch)
    assert set(used.values()) == {1}
    closed = Counter(each for step in steps for each in require_cut(run, step).closed)
    assert set(closed.values()) == {1}
    assert used.keys() <= closed.keys()
    assert len(launched) - len(closed) == require_cut(run, steps[-1]).carried
    assert not list((run.path / "work").rglob("*.*"))
    assert not list(run.experiences.glob("wave=?????"))  # every wave is compacted
    for step, batch in _batches(run).items():
        assert sorted(row.experience_id for row in batch) == list(require_cut(run, step).admitted or ())
        for row in batch:
            assert row.policy_version == rows[row.experience_id].solution.policy_version < step


def _runs_a_program(run: RunDirectory, wave: int) -> str:
    """Some solution of a wave that has a program, known beforehand: responses follow from seed and adapter."""
    calm = make_run(run.path.parent / "calm", *CARRY)
    _train(calm)
    return next(each for each, row in sorted(_rows(calm).items()) if row.solution.wave == wave and row.program)


def test_a_straggler_runs_on_while_later_waves_are_sampled_and_trained_on(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *CARRY)
    slow = _runs_a_program(run, 2)
    sandbox = _train(run, lambda each: each == slow and 3 not in run.published_versions())
    assert sandbox.runs.count(slow) == 1
    batches = _batches(run)
    assert [len(batch) for batch in batches.values()] == [3, 3, 3, 3]
    (row,) = [row for row in batches[4] if row.experience_id == slow]
    assert row.policy_version == 1
    assert row.rollout_log_probs == _rows(run)[slow].solution.log_probs
    assert (row.inclusion, row.available_s, row.duration_weight) == (1.0, None, 1.0)
    assert [len(wave_ids(run, run.load_config(), wave)) for wave in (1, 2, 3, 4)] == [3, 6, 3, 3]
    assert ExperienceStore(run).step_frame(4)["solution_id"].to_list() == sorted(r.experience_id for r in batches[4])
    _check_every_launch_is_accounted_for(run)


def test_the_last_straggler_ends_with_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *CARRY)
    slow = _runs_a_program(run, 2)
    began = time.monotonic()
    _train(run, lambda each: each == slow)
    assert time.monotonic() - began < 300
    row = _rows(run)[slow]
    assert (row.outcome, row.reward) == ("cancelled", None)
    assert slow not in {row.experience_id for batch in _batches(run).values() for row in batch}
    _check_every_launch_is_accounted_for(run)


def test_what_would_be_too_old_is_dropped_and_inclusion_knows_it(tmp_path: Path) -> None:
    stale = ("batch.on_stale=drop", "batch.max_staleness=1", "batch.duration_weighting=inverse_inclusion")
    run = make_run(tmp_path / "run", *CARRY, *stale)
    slow = _runs_a_program(run, 2)
    _train(run, lambda each: each == slow)
    assert _rows(run)[slow].outcome == "cancelled"
    cut = require_cut(run, 3)  # of version 2: the last that could have used version 1
    assert slow in cut.closed
    assert slow not in (cut.admitted or ())
    metrics = json.loads(run.batch_facts(4).read_text())["metrics"]
    assert metrics["inclusion/min_p"] <= 1
    assert metrics["batch/size"] == 3
    _check_every_launch_is_accounted_for(run)


@pytest.mark.parametrize("policy", ["window", "first_k_discard"])
def test_a_cut_kills_what_still_runs(tmp_path: Path, policy: str) -> None:
    settings = {"window": ("batch.window_s=2",), "first_k_discard": ("batch.size=3",)}[policy]
    weighting = "batch.duration_weighting=inverse_inclusion"
    run = make_run(tmp_path / "run", f"batch.batch_policy={policy}", weighting, "steps=2", *settings)
    sandbox = _train(run, lambda each: each.endswith(("-000", "-001")))
    rows = _rows(run)
    held = [rows[each] for each in sandbox.runs if each.endswith(("-000", "-001"))]
    assert {row.outcome for row in held} == {"cancelled"}
    assert all(row.reward is None and row.execution is not None for row in held)
    for step, batch in _batches(run).items():
        cut = require_cut(run, step)
        assert (len(cut.closed), cut.carried) == (6, 0)
        assert len(batch) == 3 if policy == "first_k_discard" else 4 <= len(batch) <= 6
        for row in batch:
            assert row.available_s is not None
            assert rows[row.experience_id].finished_at <= cut.at
            assert 0 < row.inclusion <= 1
        facts = json.loads(run.batch_facts(step).read_text())["metrics"]
        assert facts["batch/unused"] == 6 - len(batch)
    _check_every_launch_is_accounted_for(run)


def test_what_was_running_when_the_process_died_at_a_cut_has_no_start(tmp_path: Path) -> None:
    """The cut has been announced, then everything was killed: nothing is run again, and no wrong start is recorded."""
    run = make_run(tmp_path / "run", "batch.batch_policy=window", "batch.window_s=1", "steps=1")
    resources = fake_resources(run)
    resources.load_version(0, run.version(0) / "adapter")
    solutions = resources.agent(1, 0, range(6))
    programs = [s for s in solutions if s.code is not None]
    for solution in solutions:
        work = WorkFolder(run, solution.solution_id)
        log_launch(run, solution.solution_id, "launched")
        work.put(solution)
        if solution.code is not None:
            work.put(fake_instrument(solution.code, "nonce"))
    running, waiting = programs[0].solution_id, programs[1].solution_id
    log_launch(run, running, "started")
    for solution in programs[2:]:
        with registered(resources):
            from tasks.execute import execute
            from tasks.score import score

            execute.fn(str(run.path), "toy", solution.solution_id)
            score.fn(str(run.path), "toy", solution.solution_id)
    write_cut(run, CutRecord(1, time.time(), time.time() - 1))
    sandbox = _train(run)
    assert sandbox.runs == []
    rows = _rows(run)
    assert (rows[running].outcome, rows[waiting].outcome) == ("infra_error", "cancelled")
    assert rows[waiting].started_at >= require_cut(run, 1).at
    assert {s.solution_id for s in programs[2:]} <= {row.experience_id for row in _batches(run)[1]}
    _check_every_launch_is_accounted_for(run)


def test_killed_while_solutions_are_carried_over(tmp_path: Path, prefect_server: str) -> None:
    run = make_run(tmp_path / "killed", *CARRY)
    environment = {**os.environ, "PREFECT_API_URL": prefect_server, "PYTHONPATH": str(ROOT)}

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.flows.killed_run", str(run.path), *arguments]
        log = (tmp_path / "log").open("ab")
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)

    child = start("0.1", "9")  # every third program never ends
    end = time.monotonic() + 240
    try:
        while not run.batch(2).exists():
            assert child.poll() is None, (tmp_path / "log").read_text()[-2000:]
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
    carried = {path.parent.name: path for path in (run.path / "work").glob("wave=00002/*/solution.json")}
    assert carried
    before = {each: WorkFolder(run, each).require(Solution) for each in carried}
    again = start("0", "2")  # now they end
    assert again.wait(240) == 0, (tmp_path / "log").read_text()[-2000:]
    _check_every_launch_is_accounted_for(run)
    after = _rows(run)
    for each, solution in before.items():
        assert after[each].solution == solution  # not sampled anew by a later policy
    used = {row.experience_id: step for step, batch in _batches(run).items() for row in batch}
    assert set(carried) & used.keys(), "nothing that was carried over was used"


def test_the_reward_rate_goes_on_after_a_resume(tmp_path: Path) -> None:
    rate = ("batch.duration_weighting=reward_rate", "reward.failure=-1", "reward.valid_floor=-0.2")
    left_alone = make_run(tmp_path / "calm", *rate)
    _train(left_alone)
    stopped = make_run(tmp_path / "stopped", *rate)
    text = (stopped.path / "config.toml").read_text()
    (stopped.path / "config.toml").write_text(text.replace("steps = 3", "steps = 2"))
    _train(stopped)
    (stopped.path / "config.toml").write_text(text)
    _train(stopped)
    for step in (1, 2, 3):
        mine, other = (json.loads(run.batch_facts(step).read_text()) for run in (stopped, left_alone))
        assert mine == other
    assert mine["metrics"]["reward_rate/rho"] > 0
    rows = _rows(stopped)
    table = pl.read_parquet(stopped.batch(3))
    for row in table.iter_rows(named=True):
        reward = rows[row["experience_id"]].reward
        assert reward is not None
        charge = mine["metrics"]["reward_rate/rho"] * max(row["duration_s"], 1.0)
        assert row["reward"] == pytest.approx(reward.total - charge)
