"""The nightly entry: goes on with what was cut off, else starts anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import nightly as module
from mlrl_core.experience.state import RunState, read_state, write_state
from tests.flows.conftest import make_run

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(module, "train", lambda **arguments: calls.append(arguments["run_dir"]))
    return calls


def test_the_first_night_starts_a_run(tmp_path: Path, started: list[str]) -> None:
    module.nightly(runs_dir=str(tmp_path))
    (path,) = started
    assert Path(path).parent == tmp_path
    assert Path(path).name.startswith("nightly-")


@pytest.mark.parametrize(("status", "goes_on"), [("interrupted", True), ("running", True), ("finished", False)])
def test_what_was_cut_off_is_gone_on_with(tmp_path: Path, started: list[str], status: str, goes_on: bool) -> None:
    old = make_run(tmp_path / "nightly-20260101-040000")
    write_state(old, RunState().ended("interrupted"))  # given up when the next one was started
    run = make_run(tmp_path / "nightly-20260102-040000")
    write_state(run, RunState().ended(status))  # type: ignore[arg-type]
    make_run(tmp_path / "other")
    module.nightly(runs_dir=str(tmp_path))
    assert (started == [str(run.path)]) is goes_on
    assert str(old.path) not in started
    assert read_state(run).status == status
