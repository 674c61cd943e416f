"""Each stage by itself, without the engine: finds its output first, publishes whole, waits no longer than it may."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlrl_core.errors import InfraError
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.cuts import CutRecord, write_cut
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.instrumentation.milestones import print_lines
from mlrl_core.records import Execution, InstrumentedProgram, Score, Solution, StreamCapture
from mlrl_core.sandbox.output import capture_text
from tasks.batch import batch
from tasks.execute import execute
from tasks.generate import generate
from tasks.instrument import instrument
from tasks.resources import Resources, registered, resources_of
from tasks.sampling import Interrupted
from tasks.score import _for_people, close_as_infra_error, score
from tests.fakes import FakeSandbox, experience, fake_resources
from tests.flows.conftest import make_run

ID = "00001-000"


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Resources]:
    run = make_run(tmp_path / "run")
    made = fake_resources(run)
    made.load_version(0, run.version(0) / "adapter")
    with registered(made):
        yield made


def _put(resources: Resources, outcome: str = "graded") -> WorkFolder:
    work = WorkFolder(resources.run, ID)
    row = experience(1, 0, outcome, code=f"# {outcome}\nprint(64)\n")
    for record in (row.solution, row.program, row.execution):
        if record is not None:
            work.put(record)
    if outcome == "graded":
        work.submission.write_text("64")
    return work


def _arguments(resources: Resources) -> tuple[str, str, str]:
    return str(resources.run.path), "toy", ID


def test_generate_and_instrument_publish_once(resources: Resources) -> None:
    for _ in range(2):
        answer = generate.fn(*_arguments(resources))
    solution = WorkFolder(resources.run, ID).require(Solution)
    assert answer == ("no_code" if solution.code is None else "program")
    work = _put(resources)
    (work.path / "program.json").unlink()
    assert instrument.fn(*_arguments(resources)) == "ast"
    first = work.require(InstrumentedProgram)
    instrument.fn(*_arguments(resources))
    assert work.require(InstrumentedProgram) == first  # a second nonce would not fit what has been run


def test_execute_finds_its_output_and_runs_nothing_twice(resources: Resources) -> None:
    work = _put(resources)
    (work.path / "execution.json").unlink()
    sandbox = resources.sandbox
    assert isinstance(sandbox, FakeSandbox)
    assert execute.fn(*_arguments(resources)) == "ok"
    assert execute.fn(*_arguments(resources)) == "ok"
    assert sandbox.runs == [ID]


def test_a_timeout_is_a_result(resources: Resources) -> None:
    work = _put(resources, "timeout")
    (work.path / "execution.json").unlink()
    assert execute.fn(*_arguments(resources)) == "timeout"
    assert score.fn(*_arguments(resources)) == "timeout"
    (row,) = ExperienceStore(resources.run).read(1)
    assert row.reward is not None
    rule = resources.config.reward
    assert row.reward.total == pytest.approx(rule.failure + rule.milestone_credit)  # one milestone


def test_a_stopped_run_publishes_nothing_half_done(resources: Resources) -> None:
    sandbox = FakeSandbox(delay_s=30)
    resources.sandbox = sandbox
    work = _put(resources)
    (work.path / "execution.json").unlink()

    def stop() -> None:  # as the wave that runs it does
        resources.cancel.set()
        resources.control(1).kill.set()

    threading.Timer(0.2, stop).start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        execute.fn(*_arguments(resources))
    assert time.monotonic() - began < 5
    assert work.get(Execution) is None
    with pytest.raises(Interrupted):
        score.fn(*_arguments(resources))


def test_score_closes_the_solution_and_may_be_repeated(resources: Resources) -> None:
    work = _put(resources)
    assert score.fn(*_arguments(resources)) == "graded"
    (row,) = ExperienceStore(resources.run).read(1)
    assert row.score == Score(0.25, True, True)
    assert row.reward is not None
    assert row.reward.total == pytest.approx(0.75)
    assert row.execution is not None
    assert row.execution.submission_path is None
    assert not work.path.exists()
    work.path.mkdir(parents=True)  # killed between the row and the removal
    assert score.fn(*_arguments(resources)) == "done before"
    assert not work.path.exists()


def test_tracebacks_name_the_lines_of_the_program_as_written(resources: Resources) -> None:
    work = _put(resources, "error")
    program = work.require(InstrumentedProgram)
    work.put(dataclasses.replace(program, line_map=(1, 0, 2)))
    text = 'Traceback:\n  File "/work/solution.py", line 3, in <module>\nKeyError\n'
    ran = work.require(Execution)
    work.put(dataclasses.replace(ran, stderr=StreamCapture(text, "", len(text))))
    score.fn(*_arguments(resources))
    (row,) = ExperienceStore(resources.run).read(1)
    assert row.execution is not None
    assert 'solution.py", line 2, in' in row.execution.stderr.head


def test_a_stream_whose_head_and_tail_overlap_stays_whole(resources: Resources) -> None:
    work = _put(resources, "error")
    program = work.require(InstrumentedProgram)
    work.put(dataclasses.replace(program, line_map=(*range(1, 99), 0, 0, *range(99, 200))))
    frames = "".join(f'  File "solution.py", line {100 + i % 5}, in f\n' for i in range(50))
    for keep in range(1000, 1040):  # wherever a line number is cut apart
        stream = StreamCapture(frames[:keep], frames[-keep:], len(frames))
        shown = _for_people(
            dataclasses.replace(work.require(Execution), stderr=stream), work.require(InstrumentedProgram)
        )
        assert shown is not None
        expected = "".join(f'  File "solution.py", line {98 + i % 5}, in f\n' for i in range(50))
        assert capture_text(shown.stderr) == expected


def test_inserted_prints_never_show(resources: Resources) -> None:
    work = _put(resources, "error")
    nonce = "#mlrl:00ff:"
    work.put(dataclasses.replace(work.require(InstrumentedProgram), nonce=nonce))
    lines = print_lines("loaded data", nonce, "    ")
    leaked = "\n".join(["before", *lines, "after", ""])
    ran = work.require(Execution)
    work.put(dataclasses.replace(ran, stdout=StreamCapture(leaked, leaked, 10), stderr=StreamCapture(leaked, "", 10)))
    score.fn(*_arguments(resources))
    (row,) = ExperienceStore(resources.run).read(1)
    assert row.execution is not None
    for stream in (row.execution.stdout, row.execution.stderr):
        assert stream.head == "before\nafter\n"
        assert nonce not in stream.tail


@pytest.mark.parametrize(("action", "total"), [("flag", 0.75), ("valid_floor", -0.4), ("penalty", -0.8)])
def test_a_suspected_hack_is_kept_and_costs_what_is_configured(tmp_path: Path, action: str, total: float) -> None:
    run = make_run(tmp_path / action, f"hacks.no_training={action}")
    with registered(fake_resources(run)) as resources:
        _put(resources)
        score.fn(*_arguments(resources))
    (row,) = ExperienceStore(run).read(1)
    assert row.flags == ("no_training",)
    assert row.reward is not None
    assert row.reward.total == pytest.approx(total)
    assert row.outcome == "graded"


def test_how_far_a_failure_came_by_its_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "lines", "reward.partial_credit=error_line", "reward.failure_charge=limit")
    with registered(fake_resources(run)) as resources:
        work = _put(resources, "error")
        program = work.require(InstrumentedProgram)
        work.put(dataclasses.replace(program, line_map=(1, 0, 0, 2)))
        text = 'Traceback (most recent call last):\n  File "solution.py", line 4, in <module>\nKeyError: 1\n'
        ran = work.require(Execution)
        work.put(dataclasses.replace(ran, stderr=StreamCapture(text, text, len(text))))
        score.fn(*_arguments(resources))
        rule = resources.config.reward
    (row,) = ExperienceStore(run).read(1)
    assert row.reward is not None
    assert row.reward.total == pytest.approx(rule.failure + 7 * rule.milestone_credit)  # line 2 of 2
    assert row.reward.charged_s == resources.config.sandbox.time_limit_s


def test_a_grader_that_fails_is_retryable_and_leaves_no_row(resources: Resources) -> None:
    def broken(path: Path) -> Score:
        raise InfraError("the grader's child died")

    resources.arenas = {"toy": dataclasses.replace(resources.arenas["toy"], grade=broken)}
    _put(resources)
    with pytest.raises(InfraError):
        score.fn(*_arguments(resources))
    assert ExperienceStore(resources.run).waves() == []


def test_what_was_never_sampled_still_becomes_a_row(resources: Resources) -> None:
    close_as_infra_error(resources, ID, "generate: InfraError: no server")
    (row,) = ExperienceStore(resources.run).read(1)
    assert (row.outcome, row.reward, row.execution) == ("infra_error", None, None)
    assert row.detail == "generate: InfraError: no server"
    assert row.solution.solution_id == ID


def test_what_was_never_sampled_has_the_version_that_would_have(resources: Resources) -> None:
    """Version 9 could not be pushed, and version 7 sampled its wave."""
    resources.version_of = lambda _: 9
    resources.serving = {9: 7}.__getitem__
    close_as_infra_error(resources, ID, "generate: InfraError: no server")
    assert resources.store.get(ID).solution.policy_version == 7


def test_a_batch_is_decided_once_and_leaves_out_what_says_nothing_of_the_policy(resources: Resources) -> None:
    from mlrl_core.learner.batch_file import read_batch

    for slot, outcome in enumerate(["graded", "infra_error", "error", "no_code", "cancelled", "timeout"]):
        resources.store.append(experience(1, slot, outcome, duration_s=float(slot)))
    ids = tuple(f"00001-{slot:03d}" for slot in (0, 2, 3, 5))
    write_cut(resources.run, CutRecord(1, 200.0, 100.0, ids, tuple(resources.store.ids(1))))
    digest = batch.fn(str(resources.run.path), 1)
    rows = read_batch(resources.run.batch(1), digest)
    assert [row.experience_id for row in rows] == ["00001-000", "00001-002", "00001-003", "00001-005"]
    assert [row.duration_weight for row in rows] == [1.0] * 4
    assert rows[2].duration_s == 0.0
    resources.store.append(experience(1, 6))
    assert batch.fn(str(resources.run.path), 1) == digest


def test_a_wave_of_faults_makes_no_batch(resources: Resources) -> None:
    resources.store.append(experience(1, 0, "infra_error"))
    with pytest.raises(FileNotFoundError, match="has not been made"):
        batch.fn(str(resources.run.path), 1)
    write_cut(resources.run, CutRecord(1, 200.0, 100.0, (), ("00001-000",)))
    with pytest.raises(InfraError, match="no solution"):
        batch.fn(str(resources.run.path), 1)


def test_resources_are_found_by_run_only_while_it_is_open(resources: Resources, tmp_path: Path) -> None:
    assert resources_of(str(resources.run.path)) is resources
    with pytest.raises(RuntimeError, match="not open"):
        resources_of(str(tmp_path))
    with pytest.raises(RuntimeError, match="open already"), registered(resources):
        pass
    assert isinstance(resources.run, RunDirectory)
