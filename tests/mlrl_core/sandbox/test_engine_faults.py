"""The engine fails at each of its calls: the result is right or a typed failure, never a reward, and nothing stays."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import urllib3

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.records import Execution
from mlrl_core.sandbox import capture, containers, docker_places
from mlrl_core.sandbox.docker_backend import DockerSandbox
from mlrl_core.sandbox.output import START_LINE
from tests.mlrl_core.sandbox.fake_engine import FakeEngine, api_error

CONFIG = SandboxConfig(backend="docker", time_limit_s=1.0, memory_mb=256, slots=2, output_limit_mb=1, out_mb=4)
TRANSPORT = [
    api_error(500),
    requests.exceptions.ConnectionError("broken"),
    requests.exceptions.ReadTimeout("late"),
    urllib3.exceptions.ProtocolError("cut"),
    BrokenPipeError("pipe"),
]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setattr(containers, "DRAIN_S", 0.5)
    monkeypatch.setattr(containers, "REMOVE_S", 1.0)
    monkeypatch.setattr(containers, "_POLL_S", 0.05)
    monkeypatch.setattr(capture, "START_LINE_S", 1.0)
    monkeypatch.setattr(capture, "EXIT_S", 1.0)
    return FakeEngine()


@pytest.fixture
def inputs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "public"
    folder.mkdir(mode=0o755)
    return folder


def run(engine: FakeEngine, inputs: Path, cancel: threading.Event | None = None) -> Execution:
    sandbox = DockerSandbox(CONFIG, "faults", {}, client=engine)
    try:
        return sandbox.run("pass", inputs, collect_to=inputs.parent / "submission.csv", cancel=cancel)
    finally:
        sandbox.close()
        assert not list(sandbox.own.parent.glob(sandbox.own.name))


def nothing_stays(engine: FakeEngine) -> bool:
    return not engine.containers and not engine.volume_names


def test_good_run(engine: FakeEngine, inputs: Path) -> None:
    result = run(engine, inputs)
    assert (result.status, result.exit_code, result.stdout.tail) == ("ok", 0, "hello\n")
    assert (result.submission_state, result.submission_bytes) == ("ok", 5)
    assert not result.output_lost
    assert nothing_stays(engine)


@pytest.mark.parametrize(
    "call", ["create", "attach", "start", "create_volume", "hold", "attach_socket", "exec_create", "exec_start"]
)
@pytest.mark.parametrize("fault", TRANSPORT, ids=lambda fault: type(fault).__name__)
def test_a_call_that_fails_before_the_result(engine: FakeEngine, inputs: Path, call: str, fault: BaseException) -> None:
    engine.faults[call] = [fault]
    with pytest.raises(InfraError, match="docker: "):
        run(engine, inputs)
    assert nothing_stays(engine)


@pytest.mark.parametrize(
    ("mode", "links", "reason"),
    [
        (0o120777, 1, "symlink"),
        (0o010600, 1, "not_regular"),
        (0o140600, 1, "not_regular"),
        (0o040700, 2, "not_regular"),
        (0o100600, 2, "links"),
    ],
)
def test_an_odd_submission_is_refused(engine: FakeEngine, inputs: Path, mode: int, links: int, reason: str) -> None:
    engine.mode, engine.links = mode, links
    result = run(engine, inputs)
    assert (result.submission_state, result.submission_reason) == ("refused", reason)


def test_empty_and_missing_submissions(engine: FakeEngine, inputs: Path) -> None:
    engine.submission = b""
    assert run(engine, inputs).submission_state == "ok"
    engine.submission = None
    assert run(engine, inputs).submission_state == "missing"


@pytest.mark.parametrize(
    "answer",
    [
        (None, None),
        (None, b"sh: 1: stat: not found\n"),
        (b"id", b"81a4 1\n"),
        (b"id", b"\xff x y\n"),
        (b"id", b"81a4 1 5\n"),
    ],
)
def test_a_holder_that_does_not_answer_is_no_result(
    engine: FakeEngine, inputs: Path, answer: tuple[bytes | None, bytes | None]
) -> None:
    engine.exec_start = lambda exec_id, demux: answer  # type: ignore[method-assign]
    with pytest.raises(InfraError, match=r"no answer about the submission|cut short"):
        run(engine, inputs)
    assert nothing_stays(engine)


def test_a_full_disk_of_the_worker_is_typed(engine: FakeEngine, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(docker_places, "job_folder", full)
    with pytest.raises(InfraError, match="host failed"):
        run(engine, inputs)
    assert nothing_stays(engine)


@pytest.mark.parametrize("fault", TRANSPORT, ids=lambda fault: type(fault).__name__)
def test_a_lost_wait_is_made_good_by_asking(engine: FakeEngine, inputs: Path, fault: BaseException) -> None:
    engine.faults["wait"] = [fault]
    engine.runs_s, engine.exit_code = 0.4, 3
    result = run(engine, inputs)
    assert (result.status, result.exit_code) == ("error", 3)
    assert result.duration_s >= 0.3
    assert nothing_stays(engine)


def test_an_engine_that_is_gone_for_good(engine: FakeEngine, inputs: Path) -> None:
    gone: list[BaseException | None] = [requests.exceptions.ConnectionError("refused")] * 1000
    engine.runs_s = 30
    for call in ("wait", "inspect", "kill"):
        engine.faults[call] = list(gone)
    began = time.monotonic()
    with pytest.raises(InfraError, match="refused"):
        run(engine, inputs)
    assert time.monotonic() - began < 8


def test_a_broken_stream_is_flagged_and_the_run_judged(engine: FakeEngine, inputs: Path) -> None:
    engine.faults["stream"] = [urllib3.exceptions.ProtocolError("cut")]
    engine.exit_code = 1
    result = run(engine, inputs)
    assert (result.status, result.output_lost, result.stdout.tail) == ("error", True, "hello\n")


def test_a_result_that_cannot_be_inspected(engine: FakeEngine, inputs: Path) -> None:
    engine.faults["inspect"] = [api_error(500)]
    with pytest.raises(InfraError, match="inspecting"):
        run(engine, inputs)
    assert nothing_stays(engine)


def test_removal_under_way_and_removal_done(engine: FakeEngine, inputs: Path) -> None:
    engine.faults["remove"] = [api_error(409), api_error(409), None]
    assert run(engine, inputs).status == "ok"
    assert nothing_stays(engine)
    engine.faults["remove"] = [api_error(404)]
    assert run(engine, inputs).status == "ok"


def test_a_container_that_cannot_be_removed_is_no_result(engine: FakeEngine, inputs: Path) -> None:
    engine.faults["remove"] = [api_error(500)] * 100
    with pytest.raises(InfraError, match="removing a container"):
        run(engine, inputs)
    assert not engine.volume_names  # the other steps of the clean-up were taken


def test_no_start_line_is_no_result(engine: FakeEngine, inputs: Path) -> None:
    engine.script, engine.exit_code = [(None, b"exec: python3: not found\n")], 127
    with pytest.raises(InfraError, match="never started: exec: python3: not found"):
        run(engine, inputs)
    assert nothing_stays(engine)


def test_silence_instead_of_a_start_line(engine: FakeEngine, inputs: Path) -> None:
    engine.script, engine.runs_s = [], 30
    with pytest.raises(InfraError, match="did not start within 1 s"):
        run(engine, inputs)
    assert nothing_stays(engine)


def test_127_after_the_start_line_is_the_programs_own(engine: FakeEngine, inputs: Path) -> None:
    engine.exit_code = 127
    assert run(engine, inputs).status == "error"


def test_the_engines_own_error(engine: FakeEngine, inputs: Path) -> None:
    engine.error = "OCI runtime died"
    with pytest.raises(InfraError, match="OCI runtime died"):
        run(engine, inputs)


def test_start_line_in_pieces(engine: FakeEngine, inputs: Path) -> None:
    engine.script = [(START_LINE[:3], None), (START_LINE[3:] + b"a", None), (b"b", b"err")]
    result = run(engine, inputs)
    assert (result.stdout.tail, result.stderr.tail) == ("ab", "err")


def test_timeout_is_exactly_the_limit(engine: FakeEngine, inputs: Path) -> None:
    engine.runs_s = 30
    result = run(engine, inputs)
    assert (result.status, result.duration_s, result.submission_state) == ("timeout", 1.0, "ok")
    assert nothing_stays(engine)


def test_a_kill_call_that_fails_ends_as_infrastructure(engine: FakeEngine, inputs: Path) -> None:
    engine.runs_s = 30
    engine.faults["kill"] = [api_error(500)] * 10
    with pytest.raises(InfraError, match="did not end within"):
        run(engine, inputs)
    assert nothing_stays(engine)


def test_oom_and_its_precedence(engine: FakeEngine, inputs: Path) -> None:
    engine.oom, engine.exit_code = True, 137
    assert run(engine, inputs).status == "oom"
    engine.exit_code = 0
    result = run(engine, inputs)
    assert (result.status, result.oom_seen) == ("ok", True)
    engine.runs_s = 30
    result = run(engine, inputs)
    assert (result.status, result.oom_seen) == ("timeout", True)


def test_137_alone_is_no_oom(engine: FakeEngine, inputs: Path) -> None:
    engine.exit_code = 137
    result = run(engine, inputs)
    assert (result.status, result.signal, result.oom_seen) == ("error", 9, False)


def test_flood_is_killed_and_bounded(engine: FakeEngine, inputs: Path) -> None:
    engine.runs_s = 30
    engine.script = [(START_LINE, None), *[(b"x" * 65536, None)] * 40]
    result = run(engine, inputs)
    assert (result.status, result.output_truncated) == ("output_limit", True)
    assert result.stdout.bytes == 40 * 65536
    assert len(result.stdout.head) == 256 * 1024


def test_cancel(engine: FakeEngine, inputs: Path) -> None:
    engine.runs_s = 30
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    result = run(engine, inputs, cancel)
    assert (result.status, result.submission_state) == ("cancelled", "not_collected")
    assert nothing_stays(engine)


@pytest.mark.parametrize("call", ["create", "attach", "start", "wait", "inspect", "remove", "stream"])
def test_cancel_while_a_call_fails(engine: FakeEngine, inputs: Path, call: str) -> None:
    engine.runs_s = 1.0
    engine.faults[call] = [api_error(500)]
    cancel = threading.Event()
    threading.Timer(0.1, cancel.set).start()
    with contextlib.suppress(InfraError):  # typed too
        assert run(engine, inputs, cancel).status == "cancelled"
    assert nothing_stays(engine)


def test_image_missing_is_the_users_to_mend(engine: FakeEngine) -> None:
    import docker

    engine.faults["image"] = [docker.errors.ImageNotFound("no such image")]
    with pytest.raises(MlrlError, match="build it with `mlrl sandbox build`"):
        DockerSandbox(CONFIG, "faults", {}, client=engine)


def test_unknown_runtime_is_the_users_to_mend(engine: FakeEngine) -> None:
    config = CONFIG.model_copy(update={"runtime": "runsc"})
    with pytest.raises(MlrlError, match="no runtime 'runsc'"):
        DockerSandbox(config, "faults", {}, client=engine)
