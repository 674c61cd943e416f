"""Removes what dead workers left behind: the third layer, behind the runs' own clean-up and the watchdogs.

Only objects that carry our labels or lie in our folders are touched, and only when their owner is dead or their
deadline has passed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox.engine import engine_errors
from mlrl_core.sandbox.helper import linux
from mlrl_core.sandbox.helper.cgroups import remove_groups
from mlrl_core.sandbox.helper.trees import remove_tree
from mlrl_core.sandbox.host import runtime_dir
from mlrl_core.sandbox.owners import host_name, is_alive


@dataclass
class Swept:
    """What was removed, and what could not be."""

    containers: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def total(self) -> int:
        return sum(map(len, (self.containers, self.volumes, self.mounts, self.folders, self.groups)))


def sweep(engine_url: str = "") -> Swept:
    """Remove leftovers on this host and, where one answers, in its engine. Never raises for a missing engine."""
    from mlrl_core.sandbox.engine import connect

    swept = Swept()
    try:
        client = connect(engine_url, slots=1)
    except MlrlError:
        client = None
    if client is not None:
        try:
            sweep_engine(client, swept)
        except InfraError as error:
            swept.problems.append(str(error))
        finally:
            client.close()
    sweep_host(swept)
    return swept


def sweep_host(swept: Swept) -> None:
    """Folders, mounts and control groups of dead workers of this user on this host."""
    _sweep_folders(swept)
    swept.groups += remove_groups(lambda owner: not is_alive(owner))[0]


def sweep_engine(client: Any, swept: Swept, now: float | None = None) -> None:
    """Containers and volumes of this host and user. Raises InfraError when the engine does not answer."""
    at = time.time() if now is None else now
    wanted = {"label": [f"mlrl.instance={host_name()}"]}
    with engine_errors("listing containers"):
        containers = client.api.containers(all=True, filters=wanted)
    for container in containers:
        if _is_left(container.get("Labels") or {}, at):
            _remove(swept, swept.containers, container["Id"], client.api.remove_container, force=True, v=True)
    with engine_errors("listing volumes"):
        volumes = client.api.volumes(filters=wanted).get("Volumes") or []
    for volume in volumes:
        if _is_left(volume.get("Labels") or {}, at):
            _remove(swept, swept.volumes, volume["Name"], client.api.remove_volume)


def _is_left(labels: dict[str, str], now: float) -> bool:
    deadline = labels.get("mlrl.deadline", "")
    return not is_alive(labels.get("mlrl.owner", "")) or (deadline.isdigit() and now > int(deadline))


def _remove(swept: Swept, done: list[str], name: str, call: Any, **arguments: Any) -> None:
    import docker

    try:
        with engine_errors(f"removing {name[:24]}"):
            call(name, **arguments)
        done.append(name)
    except InfraError as error:
        gone = isinstance(error.__cause__, docker.errors.NotFound)
        under_way = isinstance(error.__cause__, docker.errors.APIError) and error.__cause__.status_code == 409
        if not gone and not under_way:
            swept.problems.append(str(error))


def _sweep_folders(swept: Swept) -> None:
    """Folders (and mounts below them) of instances whose worker is dead: ``<pid>-<start time>-<random>``."""
    instances = runtime_dir() / "instances"
    if not instances.is_dir():
        return
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for folder in sorted(instances.iterdir()):
        if is_alive(folder.name.rpartition("-")[0]):
            continue
        for target in sorted((path for path in mounted if path.startswith(f"{folder}/")), reverse=True):
            try:
                linux.unmount(target)
                swept.mounts.append(target)
            except OSError as error:
                swept.problems.append(str(error))
        (swept.folders if remove_tree(str(folder)) else swept.problems).append(str(folder))
