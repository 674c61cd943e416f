"""The parent control group of one container: its counters outlive the container, and we remove it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from mlrl_core.errors import InfraError
from mlrl_core.sandbox.engine import EngineInfo
from mlrl_core.sandbox.helper.cgroups import MOUNT, PREFIX, Counters, read_counters
from mlrl_core.sandbox.owners import owner_name

_BELOW = 1 << 20  # bytes by which the parent's limit is hit before the container's


class EngineGroups:
    """Where the engine is remote, rootless, or we are not root, there is no parent group and no counter."""

    def __init__(self, info: EngineInfo) -> None:
        self._usable = info.local and not info.rootless and os.geteuid() == 0
        self._slice = info.cgroup_driver == "systemd"

    def of(self, run_id: str, memory: int) -> RunGroup:
        """The group of one run, whose container may use ``memory`` bytes."""
        # The owner is part of the name, so that a sweep knows whose it is. A dash in a slice's name means nesting.
        name = f"{PREFIX}{owner_name()}-{run_id}"
        name = f"{name.replace('-', '_')}.slice" if self._slice else name
        return RunGroup(name, self._usable, None if self._slice else memory)


class RunGroup:
    """``parent`` goes to the engine as ``cgroup_parent`` -> ``counters`` -> ``remove``."""

    def __init__(self, name: str, usable: bool, memory: int | None) -> None:
        self._name, self._usable = name, usable
        self._oom_event = -1
        if usable and memory is not None:
            self._listen(memory)

    @property
    def parent(self) -> str:
        """Empty where there is none."""
        if not self._usable:
            return ""
        return self._name if self._name.endswith(".slice") else f"/{self._name}"

    def _listen(self, memory: int) -> None:
        """Version 1: limit the parent a little below the container, so that it is the parent that runs out.

        The engine is told by the container's own group, which may be gone when it looks: on a busy machine it missed a
        few of a thousand (docker 20.10). The kernel counts a kill in that group alone. The parent is ours, stays, and
        tells without a race. Where it can't be made, the engine's word counts.
        """
        folder = MOUNT / "memory" / self._name
        if not (MOUNT / "memory" / "memory.limit_in_bytes").exists():
            return
        event = control = -1
        try:
            folder.mkdir()
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            control = os.open(folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            (folder / "cgroup.event_control").write_text(f"{event} {control}")
            (folder / "memory.limit_in_bytes").write_text(str(memory - _BELOW))
            with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
                (folder / "memory.memsw.limit_in_bytes").write_text(str(memory - _BELOW))
            self._oom_event, event = event, -1
        except OSError:
            pass
        finally:
            for descriptor in (event, control):
                if descriptor >= 0:
                    os.close(descriptor)

    def counters(self) -> Counters:
        """CPU seconds, peak memory and kills of the run, after the container's end, before its removal."""
        if not self._usable:
            return Counters()
        counted = read_counters({folder.parent.name: folder for folder in self._folders()})
        if self._oom_event >= 0:
            with contextlib.suppress(BlockingIOError):
                return replace(counted, oom_kills=(counted.oom_kills or 0) + os.eventfd_read(self._oom_event))
        return counted

    def remove(self) -> None:
        """Idempotent. Raises InfraError when a group stays."""
        if not self._usable:
            return
        if self._oom_event >= 0:
            os.close(self._oom_event)
            self._oom_event = -1
        for folder in self._folders():
            for child in [child for child in folder.iterdir() if child.is_dir()]:
                with contextlib.suppress(OSError):
                    child.rmdir()
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InfraError(f"control group {folder} stays: {error.strerror}") from error

    def _folders(self) -> list[Path]:
        roots = [MOUNT, *(path for path in MOUNT.iterdir() if path.is_dir())]
        return [root / self._name for root in roots if (root / self._name).is_dir()]
