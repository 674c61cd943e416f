"""The parent control group of one container: its counters outlive the container, and we remove it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from mlrl_core.errors import InfraError
from mlrl_core.sandbox.engine import EngineInfo
from mlrl_core.sandbox.helper.cgroups import MOUNT, PREFIX, Counters, read_counters
from mlrl_core.sandbox.owners import owner_name


class EngineGroups:
    """Where the engine is remote, rootless, or we are not root, there is no parent group and no counter."""

    def __init__(self, info: EngineInfo) -> None:
        self._usable = info.local and not info.rootless and os.geteuid() == 0
        self._slice = info.cgroup_driver == "systemd"

    def _name(self, run_id: str) -> str:
        """The owner is part of the name, so that a sweep knows whose it is. A dash in a slice's name means nesting."""
        name = f"{PREFIX}{owner_name()}-{run_id}"
        return f"{name.replace('-', '_')}.slice" if self._slice else name

    def parent(self, run_id: str) -> str:
        """The value of ``cgroup_parent``; empty where there is none."""
        if not self._usable:
            return ""
        return self._name(run_id) if self._slice else f"/{self._name(run_id)}"

    def counters(self, run_id: str) -> Counters:
        """CPU seconds, peak memory and kills of the run, after the container's end, before its removal."""
        if not self._usable:
            return Counters()
        folders = {folder.parent.name: folder for folder in self._folders(run_id)}
        return read_counters(folders)

    def remove(self, run_id: str) -> None:
        """Raises InfraError when a group stays."""
        if not self._usable:
            return
        for folder in self._folders(run_id):
            for child in [child for child in folder.iterdir() if child.is_dir()]:
                with contextlib.suppress(OSError):
                    child.rmdir()
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InfraError(f"control group {folder} stays: {error.strerror}") from error

    def _folders(self, run_id: str) -> list[Path]:
        name = self._name(run_id)
        roots = [MOUNT, *(path for path in MOUNT.iterdir() if path.is_dir())]
        return [root / name for root in roots if (root / name).is_dir()]
