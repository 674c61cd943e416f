"""The store and its records: what goes in comes out, whatever the moment of a kill."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.experience import ExperienceStore, RunDirectory, solution_id_of, solution_seed
from mlrl_core.experience.codec import decode, encode, from_columns, schema, to_columns
from mlrl_core.experience.handover import WorkFolder
from mlrl_core.experience.launches import log_launch, read_launches
from mlrl_core.experience.state import RunState, read_state, write_state
from mlrl_core.records import Execution, InstrumentedProgram, Solution
from tests.fakes import experience


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", load_config("nano"))


def test_full_row_round_trips(run: RunDirectory) -> None:
    row = experience(1, 0, text="plan\n```python\nprint('é\u2028')\n```", milestone_values={"loss": 0.5})
    store = ExperienceStore(run)
    store.append(row)
    assert store.read(1) == [row]


@pytest.mark.parametrize("outcome", ["no_code", "infra_error", "timeout", "error", "cancelled", "no_submission"])
def test_rows_without_a_part_round_trip(run: RunDirectory, outcome: str) -> None:
    row = experience(3, 7, outcome=outcome)
    store = ExperienceStore(run)
    store.append(row)
    store.compact(3)
    assert store.read(3) == [row]


@given(
    text=st.text(),
    log_probs=st.lists(st.floats(allow_nan=False), max_size=5),
    ids=st.lists(st.integers(0, 2**31 - 1), max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_any_text_and_numbers_round_trip(text: str, log_probs: list[float], ids: list[int]) -> None:
    row = experience(1, 0, text=text)
    row = dataclasses.replace(
        row, solution=dataclasses.replace(row.solution, log_probs=tuple(log_probs), response_ids=tuple(ids))
    )
    columns = to_columns(row)
    assert from_columns(pl.DataFrame([columns], schema=schema()).row(0, named=True)) == row
    assert decode(type(row), json.loads(json.dumps(encode(row)))) == row


def test_rows_never_change(run: RunDirectory) -> None:
    store = ExperienceStore(run)
    first = experience(1, 0, reward=0.5)
    store.append(first)
    store.append(experience(1, 0, reward=0.9))
    assert store.read(1) == [first]
    store.compact(1)
    store.append(experience(1, 0, reward=0.9))
    assert store.read(1) == [first]
    assert not (run.experiences / "wave=00001").exists()


def test_order_is_by_id_whatever_the_order_of_arrival(run: RunDirectory) -> None:
    store = ExperienceStore(run)
    for slot in (11, 2, 100, 0):
        store.append(experience(2, slot))
    expected = [solution_id_of(2, slot) for slot in (0, 2, 11, 100)]
    assert store.ids(2) == expected
    assert [row.solution.solution_id for row in store.read(2)] == expected
    store.compact(2)
    assert [row.solution.solution_id for row in store.read(2)] == expected
    assert store.waves() == [2]


def test_killed_while_compacting_counts_every_row_once(run: RunDirectory) -> None:
    store = ExperienceStore(run)
    for slot in range(3):
        store.append(experience(1, slot))
    rows = {p.name: p.read_bytes() for p in (run.experiences / "wave=00001").iterdir()}
    store.compact(1)
    folder = run.experiences / "wave=00001"
    folder.mkdir()
    for name, data in list(rows.items())[:2]:  # the kill came while the folder was being removed
        (folder / name).write_bytes(data)
    (folder / ".00001-002.parquet.1-ab.partial").write_bytes(b"half")
    assert len(store.read(1)) == 3
    store.compact(1)
    assert not folder.exists()
    assert len(store.read(1)) == 3


def test_partial_files_are_not_rows(run: RunDirectory) -> None:
    store = ExperienceStore(run)
    store.append(experience(1, 0))
    (run.experiences / "wave=00001" / ".00001-001.parquet.9-aa.partial").write_bytes(b"PAR1")
    assert store.ids(1) == ["00001-000"]
    assert len(store.read(1)) == 1


def test_a_shard_of_an_older_version_is_read(run: RunDirectory) -> None:
    store = ExperienceStore(run)
    path = store.append(experience(1, 0))
    pl.read_parquet(path).drop("execution_clock_suspect", "score_versions").write_parquet(path)
    (row,) = store.read(1)
    assert row.execution is not None
    assert row.execution.clock_suspect is False
    assert row.score is not None
    assert row.score.versions == {}


def test_kill_minus_nine_leaves_whole_rows_only(run: RunDirectory) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.fakes import experience\n"
        "from mlrl_core.experience import *\n"
        "store = ExperienceStore(RunDirectory.open(Path(sys.argv[1])))\n"
        "for slot in range(10_000):\n    store.append(experience(1, slot % 1000))\n    print(slot, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    for _ in range(20):
        child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.wait(10)
    rows = ExperienceStore(run).read(1)
    assert len(rows) >= 20
    assert [r.solution.slot for r in rows] == list(range(len(rows)))


def test_handover_files(run: RunDirectory) -> None:
    row = experience(1, 0)
    work = WorkFolder(run, "00001-000")
    assert work.get(Solution) is None
    with pytest.raises(FileNotFoundError, match=r"program\.json"):
        work.require(InstrumentedProgram)
    for record in (row.solution, row.program, row.execution):
        assert record is not None
        work.put(record)
    assert work.get(Solution) == row.solution
    assert work.get(InstrumentedProgram) == row.program
    assert work.get(Execution) == row.execution
    work.remove()
    work.remove()
    assert not work.path.exists()


def test_launch_log_skips_a_torn_line_and_keeps_the_latest(run: RunDirectory) -> None:
    log_launch(run, "00002-000", "launched", 1.0)
    log_launch(run, "00002-000", "started", 2.0)
    with run.launches(2).open("a") as file:
        file.write('{"solution_id": "00002-0\n')
    log_launch(run, "00002-000", "started", 5.0)
    log_launch(run, "00002-000", "ended", 6.0, "graded")
    assert read_launches(run, 2) == {"00002-000": {"launched": 1.0, "started": 5.0, "ended": 6.0}}
    assert read_launches(run, 9) == {}


def test_state_round_trips(run: RunDirectory) -> None:
    assert read_state(run) == RunState()
    state = RunState().after(1, 10.0, 100.0).after(2, 21.0, 111.0).after(2, 22.0, 112.0).ended("interrupted")
    write_state(run, state)
    assert read_state(run) == state
    assert (state.next_step, state.wall_s, len(state.steps)) == (3, 22.0, 2)


def test_a_directory_that_holds_a_run_is_refused_and_untouched(run: RunDirectory) -> None:
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(MlrlError, match="already holds a run"):
        RunDirectory.create(run.path, load_config("nano", seed=9))
    assert before == {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MlrlError, match="not empty"):
        RunDirectory.create(tmp_path, load_config("nano"))
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(MlrlError, match="holds no run"):
        RunDirectory.open(tmp_path)


def test_an_unwritable_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MlrlError, match="writable"):
        RunDirectory.create(tmp_path / "file" / "run", load_config("nano"))


def test_two_trainers_never_own_one_run(run: RunDirectory) -> None:
    script = (
        "import sys, time; from pathlib import Path; from mlrl_core.experience import RunDirectory\n"
        "with RunDirectory.open(Path(sys.argv[1])).owned():\n    print('mine', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(MlrlError, match=f"process {child.pid} on "), run.owned():
        pass
    child.kill()
    child.wait(10)
    deadline = time.monotonic() + 5
    while True:  # the kernel gives the lock back
        try:
            with run.owned():
                break
        except MlrlError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_seeds_depend_on_run_wave_and_slot_only() -> None:
    seeds = {solution_seed(r, w, s) for r in range(3) for w in range(5) for s in range(20)}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_wave_may_be_compacted_while_it_is_read(run: RunDirectory) -> None:
    """Single rows vanish under the reader, in any order; it sees all of them or the shard, never a part."""
    store, other = ExperienceStore(run), ExperienceStore(run)
    for wave in range(1, 9):
        for slot in range(12):
            store.append(experience(wave, slot))
    done = threading.Event()

    def compact() -> None:
        for wave in range(1, 9):
            other.compact(wave)
        done.set()

    thread = threading.Thread(target=compact)
    thread.start()
    while not done.is_set():
        assert store.frame(range(1, 9), ["solution_id"]).height == 96
    thread.join()
