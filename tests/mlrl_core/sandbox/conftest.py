"""Backends for the sandbox's tests. Each skip says why; with MLRL_REQUIRE_SANDBOXES=1 (CI) it is a failure."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import MlrlError
from mlrl_core.sandbox import Sandbox
from mlrl_core.sandbox.helper.cgroups import PREFIX
from mlrl_core.sandbox.host import FIRST_UID
from mlrl_core.sandbox.owners import owner_name
from tests.mlrl_core.sandbox.fake_sandbox import FakeSandbox
from tests.mlrl_core.sandbox.private_engine import answering_url, private_engine, why_not
from tests.mlrl_core.sandbox.world import World, host_state, make_world, own_groups, own_processes

# The numbers that tests/cases/programs/README.md assumes.
PROGRAM_LIMITS = SandboxConfig(
    time_limit_s=6,
    memory_mb=256,
    pids=64,
    nofile=256,
    out_mb=32,
    tmp_mb=16,
    shm_mb=16,
    output_keep_kb=512,
    output_limit_mb=8,
    submission_mb=4,
    slots=1,
)
# For property tests: a busy machine is no failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_ENGINE_URL: list[str] = []
UIDS = range(FIRST_UID, FIRST_UID + 64)


def unavailable(reason: str) -> None:
    """Skip, or fail where a skip would hide that nothing was proved."""
    if os.environ.get("MLRL_REQUIRE_SANDBOXES") == "1":
        pytest.fail(f"MLRL_REQUIRE_SANDBOXES=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def own_runtime_folder() -> Iterator[Path]:
    """Slots, mounts and sweeps of the tests are their own: nobody else's runs are disturbed or waited for."""
    folder = Path(tempfile.mkdtemp(prefix="mlrl-tests-", dir="/tmp"))
    folder.chmod(0o711)
    before = os.environ.get("MLRL_RUNTIME_DIR")
    os.environ["MLRL_RUNTIME_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["MLRL_RUNTIME_DIR"]
    else:
        os.environ["MLRL_RUNTIME_DIR"] = before
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """URL of an engine that holds the image: the one that answers, else a private one."""
    if url := answering_url():
        _load_image(url)
        yield url
        return
    if reason := why_not():
        unavailable(f"no docker engine answers and none can be started: {reason}")
    with private_engine() as url:
        _load_image(url)
        yield url


def _load_image(url: str) -> None:
    """The image as this checkout builds it, built and loaded at most once."""
    import docker

    from mlrl_core.sandbox.image.build import build_archive

    _ENGINE_URL.append(url)
    client = docker.DockerClient(base_url=url, timeout=600)
    try:
        load_archive(client, build_archive("cpu", print, []))
    except MlrlError as error:
        unavailable(str(error))
    finally:
        client.close()


def load_archive(client: Any, archive: Path) -> None:
    """Give the engine an image that it may hold already."""
    import docker

    from mlrl_core.sandbox.image.archive import image_id

    try:
        client.images.get(image_id(archive))
    except docker.errors.ImageNotFound:
        with archive.open("rb") as file:
            client.images.load(file)


Opener = Callable[..., Sandbox]


@pytest.fixture(scope="session")
def open_for_tests(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """``open_for_tests(backend, env=..., **limits)``: one sandbox per distinct request, closed at the end."""
    from mlrl_core.sandbox import open_sandbox

    opened: dict[str, Sandbox] = {}

    def start(backend: str, env: dict[str, str] | None = None, **limits: object) -> Sandbox:
        key = repr((backend, env, sorted(limits.items())))
        if key not in opened:
            values: dict[str, object] = {"backend": backend, **limits}
            if backend == "docker":
                values["engine_url"] = request.getfixturevalue("engine")
            if backend == "fake":
                return FakeSandbox(PROGRAM_LIMITS.model_copy(update=limits))
            try:
                config = PROGRAM_LIMITS.model_copy(update=values)
                opened[key] = open_sandbox(config, run_key="tests", env=env)
            except MlrlError as error:
                unavailable(str(error))
        return opened[key]

    yield start
    for sandbox in opened.values():
        sandbox.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def nothing_left(world: World) -> Iterator[None]:
    """The host is after the test as it was before: processes, mounts, groups, inputs, sysctls, containers."""
    before = host_state(world.inputs)
    yield
    assert host_state(world.inputs) == before
    assert own_processes(UIDS) == []
    # Each idle helper keeps one set of groups, with nothing but a waiting process of ours, for its next program.
    helpers = {name.split(PREFIX)[1] for name in own_groups()}
    containers = [name for name in helpers if name.startswith(f"{owner_name()}-")]
    assert containers == [], f"a container's groups stayed: {containers}"
    assert len(helpers) <= len({name.split("-")[0] for name in helpers}), f"a run's groups stayed: {helpers}"
    assert own_containers() == []
    assert not world.marker.exists(), "planted code was executed"
    assert not world.reached(), "a program reached the test's listener"


def own_containers() -> list[str]:
    """Containers of this process in the engine of the tests, if one was needed."""
    if not _ENGINE_URL:
        return []
    import docker

    client = docker.DockerClient(base_url=_ENGINE_URL[0], timeout=30)
    try:
        found = client.api.containers(all=True, filters={"label": [f"mlrl.owner={owner_name()}"]})
        return [container["Names"][0] for container in found]
    finally:
        client.close()
