"""The sandbox: runs one program that a model wrote and comes back with the truth about it.

``open_sandbox`` chooses a backend (docker, bubblewrap, process) and proves it with a canary before anything is run.
Nothing in an ``Execution`` is derived from text or numbers that the program controls, except its captured output.

This module imports the standard library only: the helper process (``sandbox/helper``) starts through it too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mlrl_core.config.environment import SandboxConfig
    from mlrl_core.records import Execution

__all__ = ["Sandbox", "open_sandbox"]


class Sandbox(Protocol):
    """Runs programs one at a time per execution slot; ``run`` may be called from many threads at once."""

    backend: str  # docker | bubblewrap | process
    unsafe: bool  # True: the program can read and reach whatever this user can
    description: str  # one line for people: what it runs on and why this backend
    extra_env: Mapping[str, str]  # variables of the program beside the allow-list

    def run(
        self,
        source: str,
        inputs: Path,
        *,
        collect_to: Path,
        nonce: str = "",
        milestones: Sequence[str] = (),
        cancel: threading.Event | None = None,
        solution_id: str = "",
    ) -> Execution:
        """Run ``source`` with ``inputs`` as its read-only ``./input`` and return what happened.

        Waits for an execution slot first (``queue_s``). A ``submission.csv`` that passes the collector is copied to
        ``collect_to`` (a file path; its folder is made). Lines ``<nonce> <label>`` or ``<nonce> <label>: <number>``
        on stdout are milestones: taken out of the kept output, each label of ``milestones`` counted once, the latest
        number of a label kept. With an empty nonce nothing is parsed. Setting ``cancel`` kills the program at once.

        Raises InfraError when the infrastructure failed (retryable, never a result), MlrlError when ``inputs`` is no
        folder.
        """
        ...

    def packages(self) -> dict[str, str]:
        """What programs can import, for prompts: ``python`` and package names -> versions."""
        ...

    def close(self) -> None:
        """End every process (runs in progress raise InfraError) and remove every mount, group and container of this
        sandbox. Idempotent."""
        ...


def open_sandbox(
    config: SandboxConfig,
    *,
    run_key: str,
    masked_files: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> Sandbox:
    """The sandbox that ``config.backend`` asks for, proved by a canary program.

    ``auto`` takes docker where an engine answers and holds the image, else bubblewrap where it works, else, only with
    ``config.allow_unsafe_process``, a plain process. ``masked_files`` (files or folders of installed packages that
    hold a competition's labels) can't be seen inside. ``env`` adds variables to the program's environment.

    Raises MlrlError (one line: what is missing and how to mend it) when the backend can't be used.
    """
    from mlrl_core.sandbox.opening import open_backend

    return open_backend(config, run_key=run_key, masked_files=tuple(masked_files), env=dict(env or {}))
