"""The report from a store alone, and the displays."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mlrl_core.errors import MlrlError
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.statistics import run_statistics
from mlrl_core.reporting.live import display, seconds
from mlrl_core.reporting.report import standard_error, write_report
from tests.fakes import experience
from tests.flows.conftest import make_run

RIDGE = "from sklearn.linear_model import Ridge\nRidge().fit(x, y)\n"
FOREST = "from sklearn.ensemble import RandomForestRegressor\nRandomForestRegressor().fit(x, y)\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Eight waves of four: ever more forests, ever fewer errors."""
    run = make_run(tmp_path / "run", "steps=8", "wave_size=4", "batch.size=4")
    store = ExperienceStore(run)
    for wave in range(1, 9):
        for slot in range(4):
            good = slot * 2 < wave
            store.append(
                experience(
                    wave,
                    slot,
                    "graded" if slot < 2 or wave > 4 else "error",
                    raw=0.1 if good else 0.3,
                    reward=None if not (slot < 2 or wave > 4) else (0.9 if good else 0.5),
                    duration_s=5.0 if good else 1.0,
                    code=FOREST if good else RIDGE,
                )
            )
        store.compact(wave)
    return run


def test_a_report_says_what_the_rows_say(run: RunDirectory) -> None:
    report = write_report(run)
    assert report.first.steps == (1, 2, 3)
    assert report.last.steps == (6, 7, 8)
    assert report.first.valid_share == 0.5
    assert report.last.valid_share == 1.0
    assert report.last.valid_duration_mean_s is not None
    assert report.first.valid_duration_mean_s is not None
    assert report.last.valid_duration_mean_s > report.first.valid_duration_mean_s
    assert report.last.families["RandomForestRegressor"] > 0.8
    assert sum(report.last.families.values()) == pytest.approx(1)
    assert report.curve.read_bytes().startswith(b"\x89PNG")
    assert report.curve.stat().st_size > 20_000
    assert report.best_program is not None
    assert report.best_program.read_text() == FOREST
    saved = json.loads((run.report / "summary.json").read_text())
    assert saved["last"]["valid_share"] == 1.0
    assert len(saved["steps"]) == 8


def test_the_diff_goes_from_the_first_valid_program_to_the_best(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    store = ExperienceStore(run)
    store.append(experience(1, 0, "error", code="broken("))
    store.append(experience(1, 1, raw=0.4, code=RIDGE))
    store.append(experience(2, 0, raw=0.1, code=FOREST))
    for wave in (1, 2):
        store.compact(wave)
    report = write_report(run)
    assert "first valid program (00001-001)" in report.diff
    assert "-Ridge().fit(x, y)" in report.diff
    assert "+RandomForestRegressor().fit(x, y)" in report.diff


def test_a_run_without_a_valid_program_has_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    store = ExperienceStore(run)
    store.append(experience(1, 0, "no_code"))
    store.compact(1)
    report = write_report(run)
    assert (report.first_program, report.best_program, report.diff) == (None, None, "")
    assert report.first.steps == report.last.steps == (1,)


def test_a_run_that_has_not_begun_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="nothing to report"):
        write_report(make_run(tmp_path / "run"))


def test_standard_error_by_hand() -> None:
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)  # sd 1.414 / sqrt 2
    assert standard_error([1.0]) is None


def test_elsewhere_than_on_a_terminal_there_is_one_line_a_step(run: RunDirectory) -> None:
    out = io.StringIO()
    with display(Console(file=out, width=200), 8) as listener:
        listener.note("sandbox: [none]")
        for statistics in run_statistics(ExperienceStore(run)):
            listener.wave(statistics.step, {"generate": 1}, 4)
            listener.updating(statistics.step)
            listener.step(statistics, 10.0, 30.0)
    lines = out.getvalue().splitlines()
    assert lines[0] == "sandbox: [none]"
    assert len(lines) == 9
    assert lines[1] == (
        "step   1/8  reward -4.65  valid 50%  reward of valid 0.70  best 0.1000  duration 3.0 s  left 30.0 s"
    )


def test_on_a_terminal_the_table_shows_the_six_numbers(run: RunDirectory) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with display(console, 8) as listener:
        for statistics in run_statistics(ExperienceStore(run)):
            listener.wave(statistics.step, {"generate": 4, "execute": 2}, 4)
            listener.step(statistics, 10.0, 30.0)
    text = out.getvalue()
    for title in ("step", "mean reward", "valid", "best score", "mean duration", "time left"):
        assert title in text
    assert "0.1000" in text


def test_seconds_are_short() -> None:
    assert [seconds(v) for v in (None, 3.21, 99.9, 600.0)] == ["-", "3.2 s", "99.9 s", "10 min"]
