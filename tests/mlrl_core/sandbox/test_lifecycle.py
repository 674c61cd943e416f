"""Cancellation, killed workers, concurrency and clean-up, in the real backends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox.helper.cgroups import PREFIX
from mlrl_core.sandbox.helper.linux import descendants_of
from mlrl_core.sandbox.host import FIRST_UID
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, Opener, own_containers
from tests.mlrl_core.sandbox.expectations import PROGRAMS, broken_promises, read_program, stretch
from tests.mlrl_core.sandbox.world import World, own_groups

BACKENDS = ["bubblewrap", "docker", "process"]
CONTAINED = ["bubblewrap", "docker"]


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


WORKER = """
import sys, threading
from pathlib import Path
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.sandbox import open_sandbox
config = SandboxConfig(backend=sys.argv[1], engine_url=sys.argv[2], time_limit_s=600, memory_mb=256, slots=1)
sandbox = open_sandbox(config, run_key="killed")
print("open", flush=True)
sandbox.run("import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(300)",
            Path(sys.argv[3]), collect_to=Path(sys.argv[4]))
"""


def wait_for_family(pid: int, size: int) -> list[int]:
    """The processes below ``pid`` when there are at least ``size``."""
    end = time.monotonic() + 30
    while len(family := descendants_of(pid)) < size:
        assert time.monotonic() < end, f"only {len(family)} processes started"
        time.sleep(0.05)
    return family


@pytest.mark.parametrize("backend", ["bubblewrap", "process"])
def test_nothing_outlives_a_killed_worker(backend: str, world: World, own_runtime_folder: Path, tmp_path: Path) -> None:
    """The helper sees its parent's end and takes the program, mounts and groups with it."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, backend, "", str(world.inputs), str(tmp_path / "s")], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"open\n"
    family = wait_for_family(worker.pid, 3)  # helper, program, its child
    groups = [name for name in own_groups() if any(f"{PREFIX}{pid}-" in name for pid in family)]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
    assert [name for name in groups if Path("/sys/fs/cgroup", name).exists()] == []


def test_a_killed_helper_is_an_infrastructure_error(world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    sandbox = open_for_tests("bubblewrap", time_limit_s=20, pids=63)
    before = set(descendants_of(os.getpid()))
    failure: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.run("import time; time.sleep(15)", world.inputs, collect_to=tmp_path / "a")
        except InfraError as error:
            failure.append(error)

    sandbox.run("pass", world.inputs, collect_to=tmp_path / "a")
    with sandbox._lock:  # type: ignore[attr-defined]  # the helper that the next run will take
        helper = sandbox._idle[-1].pid  # type: ignore[attr-defined]
    assert helper > 1
    thread = threading.Thread(target=run)
    thread.start()
    family = wait_for_family(helper, 4)  # two of bwrap, watchdog, program
    groups = [name for name in own_groups() if f"{PREFIX}{helper}-" in name]
    os.kill(helper, signal.SIGKILL)
    thread.join(10)
    assert failure, "the run did not notice"
    end = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
    assert set(descendants_of(os.getpid())) <= before
    assert [name for name in groups if Path("/sys/fs/cgroup", name).exists()] == []
    result = sandbox.run("print('next')", world.inputs, collect_to=tmp_path / "b")  # a new helper takes over
    assert result.stdout.tail == "next\n"


def test_interrupted_run_leaves_nothing(world: World, open_for_tests: Opener, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run: the exception passes, the program is dead."""
    sandbox = open_for_tests("bubblewrap", time_limit_s=20)
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sandbox.run("import time; time.sleep(15)", world.inputs, collect_to=tmp_path / "a")
    assert time.monotonic() - began < 5 * stretch()
    assert own_containers() == []
    result = sandbox.run("print('next')", world.inputs, collect_to=tmp_path / "b")
    assert result.status == "ok"


def test_docker_container_of_a_killed_worker_is_swept(
    world: World, engine: str, own_runtime_folder: Path, tmp_path: Path
) -> None:
    import docker

    from mlrl_core.sandbox.sweep import sweep

    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, "docker", engine, str(world.inputs), str(tmp_path / "s")],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"open\n"
    client = docker.DockerClient(base_url=engine)
    wanted = {"label": ["mlrl.run=killed"], "status": ["running"]}
    end = time.monotonic() + 20
    while not client.api.containers(filters=wanted) and time.monotonic() < end:
        time.sleep(0.1)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    assert client.api.containers(filters=wanted), "the container ended by itself: nothing to sweep"
    swept = sweep(engine)
    assert swept.problems == []
    assert len(swept.containers) == 1
    assert len(swept.mounts) == 1
    assert client.api.containers(all=True, filters={"label": ["mlrl.run=killed"]}) == []
    assert sweep(engine).total() == 0
    client.close()


def test_engine_volume_for_workers_who_are_not_root(
    world: World, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to mount, the output is a volume of the engine, read through a holder."""
    import dataclasses

    from mlrl_core.sandbox import docker_backend
    from mlrl_core.sandbox.docker_backend import DockerSandbox

    real = docker_backend.engine_info
    monkeypatch.setattr(docker_backend, "engine_info", lambda client: dataclasses.replace(real(client), local=False))
    stretched = stretch()
    limit = 2.0 * stretched
    config = PROGRAM_LIMITS.model_copy(update={"backend": "docker", "engine_url": engine, "time_limit_s": limit})
    sandbox = DockerSandbox(config, "volume", world.env)
    # A hard link within the folder can't be seen through an archive, and leads nowhere else.
    names = ["life_ok", "sub_symlink", "sub_fifo", "sub_directory", "sub_big", "sub_pickle", "life_do_nothing"]
    names += ["contain_disk_out", "contain_inode_out", "life_hang_after_submission", "sub_deep_tree", "sub_empty"]
    try:
        for name in names:
            program = read_program(PROGRAMS / f"{name}.py")
            result = sandbox.run(program.source, world.inputs, collect_to=tmp_path / f"{name}.csv")
            assert broken_promises(program, result, limit, stretched) == [], (name, result)
        assert (tmp_path / "life_ok.csv").read_text() == "id,y\n1,1\n2,0\n"
        labels = {"label": ["mlrl.run=volume"]}
        assert sandbox.client.api.containers(all=True, filters=labels) == []
        assert not sandbox.client.api.volumes(filters=labels)["Volumes"]
    finally:
        sandbox.close()


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_close_ends_runs_in_progress(
    backend: str, world: World, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from mlrl_core.sandbox import open_sandbox

    url = request.getfixturevalue("engine") if backend == "docker" else ""
    config = PROGRAM_LIMITS.model_copy(update={"backend": backend, "engine_url": url, "time_limit_s": 60.0})
    sandbox = open_sandbox(config, run_key="close")
    failures: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.run("import time; time.sleep(50)", world.inputs, collect_to=tmp_path / "s")
        except InfraError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.5)
    began = time.monotonic()
    sandbox.close()
    thread.join(10)
    assert time.monotonic() - began < 8 * stretch()
    assert len(failures) == 1
    with pytest.raises(InfraError, match="closed"):
        sandbox.run("pass", world.inputs, collect_to=tmp_path / "s")
    assert own_containers() == []


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
