"""Grading in a child process: the same scores, deadlines, crashes, concurrency."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlrl_core.competitions import Competition, grade, grade_in_child, outside, prepare_competition, worker
from mlrl_core.errors import InfraError, MlrlError


@pytest.fixture(autouse=True)
def _no_workers_left() -> Iterator[None]:
    yield
    worker.close_workers()


@pytest.fixture
def competition(tmp_path: Path) -> Competition:
    return prepare_competition("micro-regression", tmp_path)


def only_worker() -> worker._Worker:
    (idle,) = worker._pool._idle
    return idle


def test_the_child_gives_the_same_score_and_is_kept(competition: Competition) -> None:
    sample = competition.sample_submission_path
    assert grade_in_child(competition, sample) == grade(competition, sample)
    first = only_worker()
    for _ in range(5):
        grade_in_child(competition, sample)
    assert only_worker() is first


def test_a_worker_that_died_between_grades_is_replaced(competition: Competition) -> None:
    sample = competition.sample_submission_path
    grade_in_child(competition, sample)
    os.kill(only_worker()._process.pid, signal.SIGKILL)
    only_worker()._process.wait()
    assert grade_in_child(competition, sample).valid


def test_a_submission_that_is_not_finished_in_time_is_invalid(
    competition: Competition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is stopped in the middle of one grade; the next, for the sample, is a fresh one."""
    sample = competition.sample_submission_path
    grade_in_child(competition, sample)
    os.kill(only_worker()._process.pid, signal.SIGSTOP)
    stopped = only_worker()
    start = time.monotonic()
    score = grade_in_child(competition, sample, deadline_s=0.5)
    assert time.monotonic() - start < 30
    assert (score.valid, score.reason) == (False, "grader_failed")
    assert not stopped.alive


def test_a_grader_that_fails_on_the_sample_too_is_our_fault(competition: Competition) -> None:
    broken = dataclasses.replace(competition, metric="no such metric")  # a KeyError in the child ends it
    with pytest.raises(InfraError, match="sample submission too"):
        grade_in_child(broken, competition.sample_submission_path)


def test_broken_answers_are_a_mistake_of_the_set_up(competition: Competition) -> None:
    competition.answers_path.write_text("id,target\n1,x\n")
    with pytest.raises(MlrlError, match="mlrl competitions check micro-regression"):
        grade_in_child(competition, _submission(competition, "id,target\n1,1\n"))
    competition.answers_path.unlink()
    with pytest.raises(MlrlError, match="can't be read"):
        grade_in_child(competition, competition.sample_submission_path)


def test_concurrent_callers_each_have_a_worker(competition: Competition) -> None:
    with ThreadPoolExecutor(3) as pool:
        scores = list(pool.map(lambda _: grade_in_child(competition, competition.sample_submission_path), range(30)))
    assert {score.raw for score in scores} == {scores[0].raw}
    assert 1 <= len(worker._pool._idle) <= 3


def test_the_worker_ends_with_its_parent(competition: Competition) -> None:
    grade_in_child(competition, competition.sample_submission_path)
    process = only_worker()._process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=10) == 0


def test_a_huge_file_is_refused_without_memory(competition: Competition) -> None:
    path = _submission(competition, "id,target\n")
    with path.open("ab") as file:
        file.write(b",\n" * 6_000_000)
    assert grade_in_child(competition, path).reason == "wrong_row_count"
    with path.open("ab") as file:
        file.truncate(20 * 1024**2)
    assert grade_in_child(competition, path).reason == "too_large"


def _submission(competition: Competition, text: str) -> Path:
    path = competition.public_dir.parent / "submission.csv"
    path.write_text(text)
    return path


def test_a_child_that_does_not_die_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the kernel's hands outlives SIGKILL; here it is one that nobody sent the signal."""
    monkeypatch.setattr(outside, "REAP_S", 0.2)
    child = subprocess.Popen(["sleep", "60"])
    try:
        began = time.monotonic()
        outside.reap(child)
        assert time.monotonic() - began < 5
        assert child.poll() is None
    finally:
        child.kill()
        child.wait(10)
