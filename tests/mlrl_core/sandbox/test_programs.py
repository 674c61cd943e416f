"""The conformance suite: every program of tests/cases/programs, in every backend, ends as its first line says."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from mlrl_core.records import Execution
from mlrl_core.sandbox import Sandbox
from mlrl_core.sandbox.host import FIRST_UID
from mlrl_core.sandbox.output import capture_text
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, Opener
from tests.mlrl_core.sandbox.expectations import PROGRAMS, Program, broken_promises, limit_of, programs, stretch
from tests.mlrl_core.sandbox.world import ANSWERS, SECRET, World

ALL = {program.name: program for program in programs()}
# Meaningful in the unsafe backend: no guard, and no promise that needs a namespace.
NEEDS_NAMESPACES = {"contain_fd_exhaust", "contain_network", "contain_socket_families", "contain_proc_env"}
NEEDS_NAMESPACES |= {"contain_engine_socket", "contain_gpu_devices", "life_hold_stdout"}
UNCONTAINED = [name for name, program in ALL.items() if not program.guarded and name not in NEEDS_NAMESPACES]
# Every program in every backend; in docker those that could differ from bubblewrap come first, the rest is slow.
IN_DOCKER_FIRST = {name for name in ALL if name.startswith("contain_")}
IN_DOCKER_FIRST |= {"life_ok", "life_error", "life_close_stdout", "life_exit_127", "life_hold_stdout"}
IN_DOCKER_FIRST |= {"life_kill_watchdog", "life_stop_watchdog", "life_self_sigkill", "life_stdin", "time_sleep"}
IN_DOCKER_FIRST |= {"out_flood_one_line", "out_forged_start", "out_head_tail", "sub_symlink", "sub_swap_race"}
IN_DOCKER_FIRST |= {"sub_deep_tree", "sub_out_dir_mode_000", "sub_sparse"}
CASES: list[object] = [("bubblewrap", name) for name in ALL]
CASES += [pytest.param("docker", name, marks=[] if name in IN_DOCKER_FIRST else [pytest.mark.slow]) for name in ALL]
CASES += [("process", name) for name in UNCONTAINED]
CASES += [("fake", name) for name in ALL]


def sandbox_for(
    program: Program, backend: str, world: World, open_for_tests: Opener, stretched: int
) -> tuple[Sandbox, float]:
    limit = limit_of(program, PROGRAM_LIMITS.time_limit_s) * stretched
    return open_for_tests(backend, env=world.env, time_limit_s=limit), limit


@pytest.mark.parametrize(("backend", "name"), CASES)
@pytest.mark.usefixtures("nothing_left")
def test_program_ends_as_promised(
    backend: str, name: str, world: World, open_for_tests: Opener, tmp_path: Path
) -> None:
    program = ALL[name]
    stretched = 1 if backend == "fake" else stretch()
    sandbox, limit = sandbox_for(program, backend, world, open_for_tests, stretched)
    with world.witness(FIRST_UID):
        result = sandbox.run(program.source, world.inputs, collect_to=tmp_path / "submission.csv")
        if name == "contain_persistence":  # the second run must not see what the first one left
            result = sandbox.run(program.source, world.inputs, collect_to=tmp_path / "submission.csv")
    assert broken_promises(program, result, limit, stretched) == [], (
        result.stdout.tail[-2000:],
        result.stderr.tail[-2000:],
    )
    assert result.backend == backend
    text = capture_text(result.stdout) + capture_text(result.stderr)
    assert SECRET not in text
    assert ANSWERS not in text
    if result.submission_state == "ok":
        collected = Path(str(result.submission_path)).read_bytes()
        assert len(collected) == result.submission_bytes
        assert ANSWERS.encode() not in collected
    check = PROSE.get(name)
    if check is not None and backend != "fake":
        check(result)


# --- what the first lines say in prose --------------------------------------------------------------------------------


def _good_run(result: Execution) -> None:
    flags = (result.oom_seen, result.output_truncated, result.output_lost)
    assert not any(flags)


def _traceback(result: Execution) -> None:
    assert 'solution.py", line 3, in train' in result.stderr.tail
    assert "IndexError" in result.stderr.tail


def _both_lines(result: Execution) -> None:
    assert "from-shell" in result.stdout.tail.splitlines()
    assert "from-shell-err" in result.stderr.tail.splitlines()


def _head_and_tail(result: Execution) -> None:
    assert result.stdout.head.startswith("FIRST LINE\n")
    assert result.stdout.tail.endswith("RESULT: last line")
    left_out = result.stdout.bytes - 2 * 512 * 1024
    assert f"[... {left_out} bytes left out ...]" in capture_text(result.stdout)


def _not_utf8(result: Execution) -> None:
    assert "\0" not in result.stdout.tail
    assert "\ufffd" in result.stdout.tail
    assert result.stdout.tail.endswith("RESULT: wrote\n")


def _three_lines(result: Execution) -> None:
    assert result.stdout.tail.splitlines() == ["imported packages", "loaded data", "defined model"]


def _no_milestones(result: Execution) -> None:
    assert result.milestones == ()
    assert result.milestone_values == {}


def _start_line_kept(result: Execution) -> None:
    assert "\x01MLRL-START" in result.stdout.tail


def _only_known_variables(result: Execution) -> None:
    names = result.stdout.tail.split("names ")[1].split("]")[0]
    allowed = {
        *("PATH", "HOME", "TMPDIR", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
        *("MLRL_SANDBOX", "MLRL_INPUT_DIR", "MLRL_OUTPUT_DIR", "HOSTNAME", "LC_CTYPE"),
        *("MLRL_PROBE_HOST", "MLRL_PROBE_PORT", "MLRL_PROBE_PRIVATE", "MLRL_PROBE_MARKER"),
    }
    assert {name.strip("[' ") for name in names.split(",")} <= allowed


def _killed_early(result: Execution) -> None:
    assert result.duration_s < 3 * stretch()
    assert result.peak_memory_mb is None or result.peak_memory_mb <= 257


def _counted(result: Execution) -> None:
    assert result.stdout.bytes > 8 << 20
    assert len(result.stdout.head) == len(result.stdout.tail) == 512 * 1024


def _busy(result: Execution) -> None:
    assert result.cpu_s is not None
    assert result.cpu_s > 0.5 * result.duration_s / stretch()
    assert result.peak_memory_mb


PROSE = {
    "life_ok": _good_run,
    "life_error": _traceback,
    "out_subprocess": _both_lines,
    "out_head_tail": _head_and_tail,
    "out_not_utf8": _not_utf8,
    "life_prints_then_hang": _three_lines,
    "out_forged_milestones": _no_milestones,
    "out_forged_milestones_loop": _no_milestones,
    "out_forged_start": _start_line_kept,
    "contain_proc_env": _only_known_variables,
    "contain_memory_bomb": _killed_early,
    "out_flood_lines": _counted,
    "out_flood_one_line": _counted,
    "time_busy": _busy,
}


@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
def test_output_folder_is_fresh(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests(backend, env=world.env, time_limit_s=6)
    first = sandbox.run(ALL["life_crash_after_submission"].source, world.inputs, collect_to=tmp_path / "a.csv")
    second = sandbox.run(ALL["life_do_nothing"].source, world.inputs, collect_to=tmp_path / "b.csv")
    assert (first.status, first.submission_state) == ("error", "ok")
    assert (second.status, second.submission_state) == ("ok", "missing")
    assert not (tmp_path / "b.csv").exists()


def test_programs_are_those_of_the_specification() -> None:
    """Where the specification lies beside this checkout, its programs and ours are the same, byte for byte."""
    specified = Path(__file__).parents[3].parent / "shared" / "cases" / "programs"
    if not specified.is_dir():
        pytest.skip("no specification beside this checkout")
    ours, theirs = (sorted(path.name for path in folder.iterdir()) for folder in (PROGRAMS, specified))
    assert ours == theirs
    assert filecmp.cmpfiles(PROGRAMS, specified, ours, shallow=False) == (ours, [], [])
