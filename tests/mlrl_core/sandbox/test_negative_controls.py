"""A containment program that can't fail proves nothing: with its defence taken away each must report a leak."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import MlrlError
from mlrl_core.sandbox import bubblewrap
from mlrl_core.sandbox.bubblewrap import BubblewrapSandbox
from mlrl_core.sandbox.local_run import Launch
from mlrl_core.sandbox.preflight import run_canaries
from mlrl_core.sandbox.slots import Slot
from tests.mlrl_core.sandbox.conftest import PROGRAM_LIMITS, unavailable
from tests.mlrl_core.sandbox.expectations import PROGRAMS, result_line
from tests.mlrl_core.sandbox.world import SECRET, World

UNHURRIED_LIMITS = PROGRAM_LIMITS.model_copy(update={"time_limit_s": 60.0})
ALLOW_ALL = base64.b64encode(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)).decode()
Change = Callable[[list[str]], list[str]]


class Weakened(BubblewrapSandbox):
    """``change`` rewrites bwrap's arguments; ``no_filter`` takes the system call filter away."""

    change: Change = staticmethod(lambda arguments: arguments)

    def launch(self, slot: Slot, run_id: str) -> Launch:
        launch = super().launch(slot, run_id)
        return replace(launch, bwrap=self.change(launch.bwrap))


@pytest.fixture
def weakened() -> Iterator[Callable[..., Weakened]]:
    opened: list[Weakened] = []

    def start(
        world: World,
        change: Change | None = None,
        no_filter: bool = False,
        base: SandboxConfig = UNHURRIED_LIMITS,
        **more: object,
    ) -> Weakened:
        env = {**world.env, **{key: str(value) for key, value in more.items() if key.isupper()}}
        limits = {key: value for key, value in more.items() if not key.isupper()}
        config: SandboxConfig = base.model_copy(update=limits)
        try:
            sandbox = Weakened(config, (), env)
        except MlrlError as error:
            unavailable(str(error))
        if change is not None:
            sandbox.change = change  # type: ignore[method-assign]
        if no_filter:
            sandbox._setup = replace(sandbox._setup, seccomp=ALLOW_ALL)
        opened.append(sandbox)
        return sandbox

    yield start
    for sandbox in opened:
        sandbox.close()


def result_of(sandbox: Weakened, name: str, world: World, tmp_path: Path) -> str:
    result = sandbox.run((PROGRAMS / f"{name}.py").read_text(), world.inputs, collect_to=tmp_path / "s")
    return result_line(result)


def without(*words: str) -> Change:
    return lambda arguments: [word for word in arguments if word not in words]


def also(*words: str) -> Change:
    """More arguments, before the root is made read-only."""

    def change(arguments: list[str]) -> list[str]:
        position = arguments.index("--remount-ro")
        return [*arguments[:position], *words, *arguments[position:]]

    return change


def writable_inputs(arguments: list[str]) -> list[str]:
    position = next(n for n in range(len(arguments)) if arguments[n] == "--ro-bind" and arguments[n + 2] == "/in")
    return [*arguments[:position], "--bind", *arguments[position + 1 :]]


def test_private_folder_mounted(world: World, weakened: Callable[..., Weakened], tmp_path: Path) -> None:
    """The answers under another path: the run's inputs are a folder that holds them, mounted once more."""
    answers = tmp_path / "answers"
    answers.mkdir()
    (answers / "answers.csv").write_bytes((world.private / "answers.csv").read_bytes())
    sandbox = weakened(world)
    sandbox.change = also("--ro-bind", f"{sandbox._stage}/in", "/private")  # type: ignore[method-assign]
    source = (PROGRAMS / "contain_private_answers.py").read_text()
    assert result_line(sandbox.run(source, answers, collect_to=tmp_path / "s")).startswith("leaked")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("contain_network", without("--unshare-net")),
        ("contain_readonly_root", also("--tmpfs", "/srv")),
    ],
)
def test_arguments_taken_away(
    name: str, change: Change, world: World, weakened: Callable[..., Weakened], tmp_path: Path
) -> None:
    assert result_of(weakened(world, change), name, world, tmp_path).startswith("leaked")
    world.reached()  # the network program did connect


def test_writable_inputs(world: World, weakened: Callable[..., Weakened], tmp_path: Path) -> None:
    """Inputs of the sandbox's own user, mounted writable: the program can change them, and the host sees it."""
    from mlrl_core.errors import InfraError

    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "a.csv").write_text("id\n1\n")
    inputs.chmod(0o777)
    (inputs / "a.csv").chmod(0o666)
    sandbox = weakened(world, writable_inputs)
    with pytest.raises(InfraError, match="changed during a run"):
        sandbox.run((PROGRAMS / "contain_input_overwrite.py").read_text(), inputs, collect_to=tmp_path / "s")


@pytest.mark.parametrize("name", ["contain_socket_families", "contain_ptrace", "contain_privileged_calls"])
def test_no_filter(name: str, world: World, weakened: Callable[..., Weakened], tmp_path: Path) -> None:
    assert result_of(weakened(world, no_filter=True), name, world, tmp_path).startswith("leaked")


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("contain_disk_out", {"out_mb": 200}),
        ("contain_inode_out", {"out_mb": 200}),
        ("contain_fd_exhaust", {"nofile": 8000}),
        ("contain_proc_env", {"MLRL_LEAK": SECRET}),
    ],
)
def test_limits_taken_away(
    name: str, limits: dict[str, object], world: World, weakened: Callable[..., Weakened], tmp_path: Path
) -> None:
    assert result_of(weakened(world, **limits), name, world, tmp_path).startswith("leaked")


@pytest.mark.parametrize(
    ("defence", "arguments"),
    [
        ("refused system calls", {"no_filter": True}),
        ("network", {"change": without("--unshare-net")}),
        ("files and environment", {"change": lambda arguments: [*arguments, "--setenv", "MLRL_UNKNOWN", "1"]}),
        ("files and environment", {"change": also("--tmpfs", "/etc")}),
        ("full output folder", {"out_mb": 400, "memory_mb": 512}),
        ("memory bomb", {"memory_mb": 4096}),
        ("fork bomb", {"pids": 1000}),
        ("output flood", {"output_limit_mb": 4096}),
    ],
)
def test_preflight_refuses_a_backend_without_a_defence(
    defence: str, arguments: dict[str, object], world: World, weakened: Callable[..., Weakened]
) -> None:
    def start(config: SandboxConfig) -> Weakened:
        return weakened(world, base=config, **arguments)

    with pytest.raises(MlrlError, match=f"bubblewrap is not safe here: {defence}"):
        run_canaries(start, PROGRAM_LIMITS)


def test_preflight_passes_what_is_whole(world: World, weakened: Callable[..., Weakened]) -> None:
    lines = run_canaries(lambda config: weakened(world, base=config), PROGRAM_LIMITS)
    assert len(lines) == 8
    assert all(line.endswith(": held") for line in lines)


def test_root_never_starts_bwrap(world: World, weakened: Callable[..., Weakened], tmp_path: Path) -> None:
    """The helper refuses when the change of user did not happen."""
    import os

    from mlrl_core.errors import InfraError

    if os.geteuid() != 0:
        pytest.skip("only root can be refused")
    sandbox = weakened(world)
    original = sandbox.launch
    sandbox.launch = lambda slot, run_id: replace(original(slot, run_id), uid=None)  # type: ignore[method-assign]
    with pytest.raises(InfraError, match="bubblewrap is never started by root"):
        sandbox.run("pass", world.inputs, collect_to=tmp_path / "s")


def test_missing_bwrap_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda name: None)
    with pytest.raises(MlrlError, match="install the package `bubblewrap`"):
        BubblewrapSandbox(PROGRAM_LIMITS, (), {})
