"""The bubblewrap backend: namespaces over this host's own system and Python environment, no daemon.

Started by root it gives up root before bwrap is started (bwrap run by root is root outside, whatever it maps to
inside). The environment's trees are bound where they are, so that an interpreter in somebody's home folder works too.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import MlrlError
from mlrl_core.sandbox import programs
from mlrl_core.sandbox.helper_process import Setup
from mlrl_core.sandbox.host import FIRST_UID, runtime_dir, slot_count
from mlrl_core.sandbox.limits import Limits
from mlrl_core.sandbox.local import LocalSandbox
from mlrl_core.sandbox.local_run import Launch
from mlrl_core.sandbox.seccomp import filter_bytes
from mlrl_core.sandbox.slots import Slot

_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_NAMESPACES = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--hostname",
    "sandbox",
    "--clearenv",
)


class BubblewrapSandbox(LocalSandbox):
    """``masked``: files and folders of the bound trees that must look empty inside."""

    backend = "bubblewrap"

    def __init__(self, config: SandboxConfig, masked: Sequence[Path], env: Mapping[str, str]) -> None:
        if shutil.which("bwrap") is None:
            raise MlrlError("bubblewrap is not installed: install the package `bubblewrap`")
        runtime = runtime_dir()
        self._as_root = os.geteuid() == 0
        self.extra_env = dict(env)
        self._trees = python_trees()
        models = programs.models_folder(config.models_dir)
        if models is not None:
            self._trees.append((models, Path(programs.MODELS)))
            self.extra_env = {**self.extra_env, "MLRL_MODELS_DIR": programs.MODELS}
        stage = runtime / "stage"
        stage.mkdir(mode=0o711, exist_ok=True)
        self._stage = str(stage)
        self._static = [*self._system(), *self._python(), *self._masks(masked)]
        slots = slot_count(config.slots, config.cpus, Limits.of(config).memory)
        uids = [FIRST_UID + index for index in range(slots)] if self._as_root else [os.getuid()]
        setup = Setup(
            stage=self._stage,
            trees=tuple(str(source) for source, _ in self._trees) if self._as_root else (),
            etc=programs.account_files(uids),
            isolate=True,
            seccomp=base64.b64encode(filter_bytes()).decode(),
        )
        super().__init__(config, runtime, setup, foreign_user=self._as_root)
        version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, timeout=10).stdout.strip()
        self.description = f"{version} over this host's system and Python environment" + (
            ", one unprivileged user per slot" if self._as_root else ""
        )

    def launch(self, slot: Slot, run_id: str) -> Launch:
        environment = programs.environment("bwrap", len(slot.cpus), self.extra_env)
        settings = [word for name, value in environment.items() for word in ("--setenv", name, value)]
        python = (sys.executable, *programs.PYTHON_FLAGS, programs.SOLUTION)
        return Launch(
            argv=[*programs.watchdog(self.limits.time_s), *programs.ANNOUNCE, *python],
            env={"PATH": os.environ.get("PATH", os.defpath)},
            bwrap=[*_NAMESPACES, *settings, *self._static, *self._places()],
            workdir="",
            uid=slot.uid if self._as_root else None,
        )

    def _places(self) -> list[str]:
        stage = self._stage
        return [
            *("--ro-bind", f"{stage}/in", programs.IN, "--ro-bind", f"{stage}/job", programs.JOB),
            *("--bind", f"{stage}/out", programs.OUT, "--ro-bind", f"{stage}/in", f"{programs.OUT}/input"),
            *("--remount-ro", "/", "--remount-ro", "/dev", "--chdir", programs.OUT),
        ]

    def _system(self) -> list[str]:
        arguments = ["--ro-bind", "/usr", "/usr"]
        for name in _SYSTEM_LINKS:
            path = Path("/") / name
            if path.is_symlink():
                arguments += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                arguments += ["--ro-bind", str(path), str(path)]
        arguments += ["--ro-bind", f"{self._stage}/etc", "/etc", "--proc", "/proc", "--dev", "/dev"]
        # Before the Python trees: an environment that lies below /tmp is mounted into it, not hidden by it.
        return [*arguments, "--bind", f"{self._stage}/tmp", "/tmp", "--bind", f"{self._stage}/shm", "/dev/shm"]

    def _python(self) -> list[str]:
        arguments: list[str] = []
        for index, (source, inside) in enumerate(self._trees):
            outside = f"{self._stage}/tree{index}" if self._as_root else str(source)
            arguments += ["--ro-bind", outside, str(inside)]
        for unused in unused_packages():
            arguments += ["--tmpfs", str(unused), "--remount-ro", str(unused)]
        for link, target in outside_links(Path(sys.executable), [inside for _, inside in self._trees]):
            arguments += ["--symlink", target, link]
        return arguments

    def _masks(self, masked: Sequence[Path]) -> list[str]:
        arguments: list[str] = []
        visible = [*self._trees, (Path("/usr"), Path("/usr"))]
        for path in masked:
            real = path.resolve()
            if not real.exists():
                continue
            for source, inside in visible:
                if real.is_relative_to(source):
                    target = str(inside / real.relative_to(source))
                    empty = ["--ro-bind", f"{self._stage}/empty", target]
                    arguments += ["--tmpfs", target, "--remount-ro", target] if real.is_dir() else empty
        return arguments


def python_trees() -> list[tuple[Path, Path]]:
    """(real folder, path inside) of the environment and of the Python it was made from, where not below /usr."""
    trees: list[tuple[Path, Path]] = []
    for prefix in (sys.base_prefix, sys.prefix):
        inside, real = Path(prefix), Path(prefix).resolve()
        if real.is_relative_to("/usr"):
            continue
        if real == Path("/"):
            raise MlrlError("the Python environment is the root folder: use a virtual environment")
        if not any(inside.is_relative_to(other) for _, other in trees):
            trees.append((real, inside))
    return trees


def unused_packages() -> list[Path]:
    """Folders of the base interpreter that a virtual environment does not import from: its own packages, its tests.

    What is not there can't leak: they may hold copies of masked data.
    """
    library = Path(sysconfig.get_path("stdlib"))
    chosen = [library / "test"]
    if sys.prefix != sys.base_prefix and str(library / "site-packages") not in sys.path:
        chosen.append(library / "site-packages")
    trees = [inside for _, inside in python_trees()]
    return [path for path in chosen if path.is_dir() and any(path.is_relative_to(tree) for tree in trees)]


def outside_links(executable: Path, trees: Sequence[Path]) -> list[tuple[str, str]]:
    """Symbolic links between the interpreter's path and the file that no bound tree holds: (path, target)."""
    links: list[tuple[str, str]] = []
    path = executable
    for _ in range(40):
        if not path.is_symlink():
            break
        target = os.readlink(path)
        if not any(path.is_relative_to(tree) for tree in (*trees, Path("/usr"))):
            links.append((str(path), target))
        path = Path(os.path.normpath(path.parent / target))
    return links
