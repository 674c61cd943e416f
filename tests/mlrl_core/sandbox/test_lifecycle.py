"""Cancellation, killed workers, concurrency and clean-up, in the real backends."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox.containers import Container
from mlrl_core.sandbox.host import FIRST_UID
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, Opener
from tests.mlrl_core.sandbox.expectations import stretch
from tests.mlrl_core.sandbox.world import World

BACKENDS = ["bubblewrap", "docker", "process"]
CONTAINED = ["bubblewrap", "docker"]
BOMB = "x = []\nwhile True: x.append(b'x' * (8 << 20))"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("nothing_left")
def test_cancel_kills_at_once(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests(backend, time_limit_s=30)
    cancel = threading.Event()
    timer = threading.Timer(1.5, cancel.set)
    timer.start()
    began = time.monotonic()
    result = sandbox.run(
        "open('submission.csv', 'w').write('id\\n'); import time; time.sleep(25)",
        world.inputs,
        collect_to=tmp_path / "submission.csv",
        cancel=cancel,
    )
    assert time.monotonic() - began < 8 * stretch()
    assert (result.status, result.submission_state) == ("cancelled", "not_collected")
    assert not (tmp_path / "submission.csv").exists()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("nothing_left")
def test_cancelled_before_it_starts(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    sandbox = open_for_tests(backend, time_limit_s=30)
    result = sandbox.run("import time; time.sleep(20)", world.inputs, collect_to=tmp_path / "s", cancel=cancel)
    assert result.status == "cancelled"


@pytest.mark.parametrize("backend", BACKENDS)
def test_milestones_travel_through(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    source = "\n".join(
        [
            "print('before', end='')",
            "print('n0nce loaded data')",
            "print('n0nce training loss: 0.25')",
            "print('loaded data')",
            "print('n0nce trained model')",
            "print('n0nce loaded data')",
        ]
    )
    result = open_for_tests(backend, time_limit_s=60).run(
        source,
        world.inputs,
        collect_to=tmp_path / "s",
        nonce="n0nce",
        milestones=("loaded data", "training loss", "trained model"),
    )
    assert result.milestones == ("loaded data", "training loss", "trained model")
    assert result.milestone_values == {"training loss": 0.25}
    assert result.stdout.tail == "beforeloaded data\n"
    assert not result.milestones_out_of_order


@pytest.mark.parametrize("backend", CONTAINED)
def test_the_same_places_by_every_name(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    source = "\n".join(
        [
            "import os, glob",
            "assert os.getcwd() == os.environ['MLRL_OUTPUT_DIR'] == '/out'",
            "assert open('input/train.csv').read() == open(os.environ['MLRL_INPUT_DIR'] + '/train.csv').read()",
            "assert sorted(os.listdir('.')) == ['input']",
            "import getpass; print(getpass.getuser())",
        ]
    )
    result = open_for_tests(backend, time_limit_s=60).run(source, world.inputs, collect_to=tmp_path / "s")
    assert (result.status, result.stderr.tail) == ("ok", "")
    assert result.stdout.tail.startswith("sandbox")


@pytest.mark.parametrize("backend", CONTAINED)
@pytest.mark.usefixtures("nothing_left")
def test_inputs_in_private_folders_are_readable(backend: str, open_for_tests: Opener, tmp_path: Path) -> None:
    inputs = tmp_path / "private" / "public"
    inputs.mkdir(parents=True)
    (inputs / "sub").mkdir()
    (inputs / "sub" / "a.csv").write_text("id\n1\n")
    (inputs / "sub" / "a.csv").chmod(0o600)
    inputs.chmod(0o700)
    (tmp_path / "private").chmod(0o700)
    result = open_for_tests(backend, time_limit_s=60).run(
        "print(open('input/sub/a.csv').read())", inputs, collect_to=tmp_path / "s"
    )
    assert (result.status, result.stdout.tail) == ("ok", "id\n1\n\n")
    assert (inputs / "sub" / "a.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_that_are_no_folder(backend: str, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests(backend, time_limit_s=60)
    with pytest.raises(MlrlError, match="give a folder with the public data"):
        sandbox.run("pass", tmp_path / "nowhere", collect_to=tmp_path / "s")


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_changed_by_somebody_else(backend: str, open_for_tests: Opener, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir(mode=0o755)
    (inputs / "a.csv").write_text("id\n1\n")
    threading.Timer(0.7, lambda: (inputs / "a.csv").write_text("id\n2\n")).start()
    sandbox = open_for_tests(backend, time_limit_s=60)
    with pytest.raises(InfraError, match="changed during a run"):
        sandbox.run("import time; time.sleep(1.5)", inputs, collect_to=tmp_path / "s")


@pytest.mark.parametrize("backend", BACKENDS)
def test_strange_sources_are_ordinary_errors(
    backend: str, world: World, open_for_tests: Opener, tmp_path: Path
) -> None:
    sandbox = open_for_tests(backend, time_limit_s=60)
    for source in ("", "x = '\x00'", "# \udcff\nprint(1)", "print('é" * 20_000):
        result = sandbox.run(source, world.inputs, collect_to=tmp_path / "s")
        assert result.status in ("ok", "error")


@pytest.mark.parametrize("backend", ["bubblewrap"])
def test_slots_run_side_by_side_and_queue(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests(backend, time_limit_s=20, slots=2)

    def one(number: int) -> object:
        source = "import os, time; time.sleep(1); print(os.getuid(), sorted(os.sched_getaffinity(0)))"
        return sandbox.run(source, world.inputs, collect_to=tmp_path / f"{number}")

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(4)))
    assert {result.status for result in results} == {"ok"}  # type: ignore[attr-defined]
    waits = sorted(result.queue_s for result in results)  # type: ignore[attr-defined]
    assert waits[1] < 1.0 <= waits[2]  # two at once, two behind them
    users = {result.stdout.tail.split()[0] for result in results}  # type: ignore[attr-defined]
    assert users == ({str(FIRST_UID), str(FIRST_UID + 1)} if os.geteuid() == 0 else {str(os.getuid())})


def test_no_slot_in_time_is_an_infrastructure_error(world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests("bubblewrap", time_limit_s=10, slot_wait_s=0.5, slots=1)
    holder = threading.Thread(
        target=sandbox.run,
        args=("import time; time.sleep(3)", world.inputs),
        kwargs={"collect_to": tmp_path / "a"},
    )
    holder.start()
    time.sleep(0.5)
    with pytest.raises(InfraError, match="no execution slot became free"):
        sandbox.run("pass", world.inputs, collect_to=tmp_path / "b")
    holder.join()


@pytest.mark.parametrize("backend", CONTAINED)
def test_nothing_is_reused(backend: str, world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    """Two runs share no container, no pid namespace, no boot of an interpreter."""
    sandbox = open_for_tests(backend, time_limit_s=60)
    source = "import os; print(os.readlink('/proc/self/ns/pid'), os.getpid())"
    outputs = [sandbox.run(source, world.inputs, collect_to=tmp_path / "s").stdout.tail for _ in range(2)]
    assert all(int(text.split()[1]) < 10 for text in outputs)


def test_masked_package_data_is_invisible(world: World, tmp_path: Path) -> None:
    import sklearn

    from mlrl_core.sandbox import open_sandbox

    data = Path(sklearn.__file__).parent / "datasets" / "data"
    config = PROGRAM_LIMITS.model_copy(update={"backend": "bubblewrap", "memory_mb": 512})
    masked = [data / "breast_cancer.csv", data.parent / "descr", tmp_path / "elsewhere"]
    sandbox = open_sandbox(config, run_key="masks", masked_files=masked)
    source = f"""
import os
print(os.path.getsize({str(masked[0])!r}), os.listdir({str(masked[1])!r}), os.path.exists({str(data / "iris.csv")!r}))
try:
    open({str(masked[0])!r}, "w")
except OSError as error:
    print("refused", error.errno)
"""
    try:
        result = sandbox.run(source, world.inputs, collect_to=tmp_path / "s")
    finally:
        sandbox.close()
    assert result.stdout.tail.splitlines()[0] == "0 [] True"
    assert result.stdout.tail.splitlines()[1].startswith("refused")


@pytest.mark.parametrize("backend", CONTAINED)
def test_models_folder_is_there_and_read_only(
    backend: str, world: World, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from mlrl_core.sandbox import open_sandbox

    models = tmp_path / "models"
    models.mkdir(mode=0o755)
    models.chmod(0o755)
    (models / "weights").write_text("w")
    url = request.getfixturevalue("engine") if backend == "docker" else ""
    update = {"backend": backend, "engine_url": url, "models_dir": str(models)}
    sandbox = open_sandbox(PROGRAM_LIMITS.model_copy(update=update), run_key="models")
    source = """
import os
folder = os.environ["MLRL_MODELS_DIR"]
print(folder, open(folder + "/weights").read())
try:
    open(folder + "/new", "w")
except OSError as error:
    print("refused")
"""
    try:
        assert sandbox.run(source, world.inputs, collect_to=tmp_path / "s").stdout.tail == "/models w\nrefused\n"
        assert "numpy" in sandbox.packages()
    finally:
        sandbox.close()
    with pytest.raises(MlrlError, match="models_dir"):
        open_sandbox(PROGRAM_LIMITS.model_copy(update={**update, "models_dir": "/no/such"}), run_key="models")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can raise its priority")
def test_a_workers_raised_priority_is_not_the_programs(world: World, tmp_path: Path) -> None:
    """A helper that starts at nice -5 hands on 0."""
    from mlrl_core.sandbox.bubblewrap import BubblewrapSandbox

    before = os.getpriority(os.PRIO_PROCESS, 0)
    sandbox = BubblewrapSandbox(PROGRAM_LIMITS.model_copy(update={"time_limit_s": 60.0}), (), {})
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    try:
        result = sandbox.run("import os; print(os.nice(0))", world.inputs, collect_to=tmp_path / "s")
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
        sandbox.close()
    assert result.stdout.tail == "0\n"


@pytest.mark.parametrize(("program", "status"), [(BOMB, "oom"), ("import os; os.kill(os.getpid(), 9)", "error")])
def test_an_end_by_memory_that_the_engine_missed(
    program: str,
    status: str,
    world: World,
    open_for_tests: Opener,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine may lose the event; our own group tells one end by SIGKILL from the other."""
    sandbox = open_for_tests("docker", time_limit_s=60)
    inspect = Container.inspect
    monkeypatch.setattr(Container, "inspect", lambda self: inspect(self) | {"OOMKilled": False})
    result = sandbox.run(program, world.inputs, collect_to=tmp_path / "s")
    assert (result.status, result.exit_code, result.oom_seen) == (status, 137, status == "oom")
