"""An environment may lie anywhere, below /tmp too (a checkout there is what people try things in)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mlrl_core
from tests.mlrl_core.sandbox.conftest import unavailable


def test_programs_run_in_an_environment_below_tmp() -> None:
    """A real environment below /tmp, opened by its own Python: the sandbox's own /tmp must not hide it."""
    if shutil.which("bwrap") is None:
        unavailable("bubblewrap is not installed")
    repository = Path(mlrl_core.__file__).parents[1]
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    script = f"""
import sys, tempfile
from pathlib import Path
sys.path += [{str(repository)!r}, {packages!r}]
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.sandbox import open_sandbox
folder = Path(tempfile.mkdtemp())
(folder / "in").mkdir()
(folder / "in").chmod(0o755)
folder.chmod(0o755)
sandbox = open_sandbox(SandboxConfig(backend="bubblewrap", memory_mb=256, slots=1), run_key="below-tmp")
try:
    result = sandbox.run("import sys; print(sys.prefix)", folder / "in", collect_to=folder / "submission.csv")
finally:
    sandbox.close()
print(result.status, result.stdout.head.strip())
"""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mlrl-env-") as folder:
        Path(folder).chmod(0o755)
        environment = Path(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
        done = subprocess.run(
            [str(environment / "bin" / "python"), "-c", script],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.stdout.split() == ["ok", str(environment)], done.stderr[-2000:]
