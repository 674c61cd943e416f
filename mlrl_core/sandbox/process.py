"""The process backend: a plain subprocess with limits. It contains nothing: for tests and the nano profile only."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.sandbox import programs
from mlrl_core.sandbox.helper_process import Setup
from mlrl_core.sandbox.host import runtime_dir
from mlrl_core.sandbox.local import LocalSandbox
from mlrl_core.sandbox.local_run import Launch
from mlrl_core.sandbox.slots import Slot


class ProcessSandbox(LocalSandbox):
    """Ends with its run, has deadlines and a watched memory limit, but reads and reaches what this user can."""

    backend = "process"
    unsafe = True

    def __init__(self, config: SandboxConfig, env: Mapping[str, str]) -> None:
        self.extra_env: Mapping[str, str] = dict(env)
        runtime = runtime_dir()
        setup = Setup(stage="", trees=(), etc={}, isolate=False, seccomp=base64.b64encode(b"").decode())
        super().__init__(config, runtime, setup, foreign_user=False)
        self.description = "UNSAFE: plain processes of this user, nothing is contained"

    def launch(self, slot: Slot, run_id: str) -> Launch:
        workdir = str(self._own / run_id)
        python = (sys.executable, *programs.PYTHON_FLAGS, f"{workdir}/job/solution.py")
        environment = programs.environment(
            "process",
            len(slot.cpus),
            self.extra_env,
            in_dir=f"{workdir}/out/input",
            out_dir=f"{workdir}/out",
            tmp_dir=f"{workdir}/tmp",
        )
        environment["PATH"] = os.environ.get("PATH", environment["PATH"])
        return Launch(argv=[*programs.ANNOUNCE, *python], env=environment, bwrap=[], workdir=workdir, uid=None)
