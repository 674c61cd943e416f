"""The whole chain with its real parts: sandbox, grader, learner, Prefect and MLflow, on diamonds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mlrl_core.config import load_config
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.state import read_state
from mlrl_core.learner.batch_file import read_batch
from mlrl_core.tracking import tracking_uri

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.integration]

# The grammar samples from no policy, so its log-probabilities are nobody's.
SMALL = [
    "learner.mismatch_limit=1000",
    "steps=2",
    "wave_size=8",
    "batch.size=8",
    "warmstart.demonstrations=64",
    "warmstart.epochs=1",
]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    from flows.server import prefect_api
    from mlrl_core.competitions import prepare_competition

    prepare_competition("diamonds")
    patch = pytest.MonkeyPatch()
    patch.setenv("PREFECT_HOME", str(tmp_path))
    patch.delenv("PREFECT_API_URL", raising=False)
    with prefect_api(tmp_path / "server.log") as url:
        yield {**os.environ, "PREFECT_API_URL": url}
    patch.undo()


def _start(run: RunDirectory, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    log = run.path.parent.joinpath("out.log").open("ab")
    command = [sys.executable, "-m", "tests.integration.grammar_run", str(run.path)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)


def _gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_programs_are_run_graded_and_learnt_from(tmp_path: Path, environment: dict[str, str]) -> None:
    from mlflow.tracking import MlflowClient

    run = RunDirectory.create(tmp_path / "runs" / "real", load_config("nano", SMALL))
    child = _start(run, environment)
    assert child.wait(400) == 0, (run.path.parent / "out.log").read_text()[-3000:]
    store = ExperienceStore(run)
    rows = [row for wave in (1, 2) for row in store.read(wave)]
    assert len(rows) == 16
    graded = [row for row in rows if row.outcome == "graded"]
    failed = [row for row in rows if row.outcome in ("error", "no_submission", "invalid_submission")]
    assert len(graded) >= 4
    assert failed
    assert not [row for row in rows if row.outcome in ("infra_error", "cancelled")]
    for row in graded:
        assert row.score is not None
        assert row.score.raw is not None
        assert 0.05 < row.score.raw < 1.5  # RMSLE between a strong model and a constant
        assert row.execution is not None
        assert row.execution.duration_s > 0
        assert row.execution.milestones
        assert row.program is not None
        assert row.program.inserter == "ast"
    assert run.published_versions() == [0, 1, 2]
    config = run.load_config()
    (stored,) = MlflowClient(tracking_uri(config.tracking, run.path)).search_runs(["1"])
    assert stored.info.status == "FINISHED"
    assert stored.data.metrics["outcome/valid_share"] > 0
    assert (run.report / "best.py").exists()
    assert (run.report / "learning_curve.png").exists()


def test_a_solution_and_its_improvement_are_learnt_from_as_one_episode(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """With the nano policy itself, which has hardly been warm-started: prompts, sampling and both passes are real."""
    from mlflow.tracking import MlflowClient

    path = tmp_path / "runs" / "two"
    two_step = ["improve.improve_prob=0.5", "improve.episode=two_step", "prompt.max_tokens=400"]
    settings = [f"--set={each}" for each in (*SMALL[1:], *two_step)]
    command = [sys.executable, "-m", "mlrl_core.cli", "train", "--profile", "nano", "--run", str(path), *settings]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    run = RunDirectory.open(path)
    assert run.published_versions() == [0, 1, 2]
    for wave in (1, 2):
        rows = {row.solution.solution_id: row for row in ExperienceStore(run).read(wave)}
        batch = read_batch(run.batch(wave))
        assert [row.experience_id for row in batch] == sorted(rows)
        for solve, improve in zip(batch[::2], batch[1::2], strict=True):
            assert solve.next_id == improve.experience_id
            assert solve.prompt_ids == batch[0].prompt_ids
            assert improve.prompt_ids != solve.prompt_ids
            before, after = rows[solve.experience_id], rows[improve.experience_id]
            assert before.reward is not None
            assert after.solution.parent_reward == before.reward.total
            assert before.finished_at <= after.solution.generated_at
    config = run.load_config()
    (stored,) = MlflowClient(tracking_uri(config.tracking, run.path)).search_runs(["1"])
    assert stored.data.params["improve.episode"] == "two_step"
    total = sum(row.reward for row in batch)
    assert stored.data.metrics["episode/return_mean"] == pytest.approx(total / 4)
    assert stored.data.metrics["improve/share"] == 0.5


def test_ctrl_c_ends_everything_and_a_resume_finishes(tmp_path: Path, environment: dict[str, str]) -> None:
    run = RunDirectory.create(tmp_path / "runs" / "stopped", load_config("nano", SMALL))
    child = _start(run, environment)
    end = time.monotonic() + 300
    while not (run.launches(1).exists() and '"started"' in run.launches(1).read_text()):
        assert child.poll() is None, (run.path.parent / "out.log").read_text()[-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)  # programs are running, in the sandbox
    family = psutil.Process(child.pid).children(recursive=True)
    assert len(family) >= 2  # the learner and the sandbox's helper at least
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.wait(15) in (3, 130)  # 130: something was slow and was ended hard
    assert time.monotonic() - sent < 15
    _gone(family)
    assert read_state(run).status == "interrupted"
    kept = {path.stem for path in run.experiences.glob("wave=00001/*.parquet")}
    again = _start(run, environment)
    assert again.wait(400) == 0, (run.path.parent / "out.log").read_text()[-3000:]
    assert run.published_versions() == [0, 1, 2]
    ids = ExperienceStore(run).ids(1)
    assert len(ids) == 8
    assert kept <= set(ids)
