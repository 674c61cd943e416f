"""What every backend gives a program: its command, its environment, its places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlrl_core.errors import MlrlError

# The program's places inside docker and bubblewrap.
IN, JOB, OUT, MODELS = "/in", "/job", "/out", "/models"
SOLUTION = f"{JOB}/solution.py"
# -I: no working folder, no user site, no PYTHON* variables. -u: what was printed before a kill is there.
PYTHON_FLAGS = ("-I", "-u", "-B", "-X", "utf8")
# The shell says that the sandbox stands, then becomes the interpreter: the cheapest honest start line.
ANNOUNCE = ("/bin/sh", "-c", 'printf "\\001MLRL-START\\n"; unset PWD OLDPWD SHLVL; exec "$@"', "sh")
WATCHDOG_MARGIN_S = 20


def watchdog(limit_s: float) -> tuple[str, ...]:
    """Ends the program where nobody outside is left to do so."""
    return ("timeout", "-s", "KILL", f"{limit_s + WATCHDOG_MARGIN_S:g}")


def environment(
    sandbox: str, threads: int, extra: Mapping[str, str], *, in_dir: str = IN, out_dir: str = OUT, tmp_dir: str = "/tmp"
) -> dict[str, str]:
    """The allow-list, built from nothing. ``sandbox``: docker, bwrap or process."""
    count = str(threads)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": tmp_dir,
        "TMPDIR": tmp_dir,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "MLRL_SANDBOX": sandbox,
        "MLRL_INPUT_DIR": in_dir,
        "MLRL_OUTPUT_DIR": out_dir,
        **extra,
    }


def models_folder(configured: str) -> Path | None:
    """The folder of pretrained models, or None. Raises MlrlError when it is none that everybody can read."""
    if not configured:
        return None
    folder = Path(configured).resolve()
    if not folder.is_dir() or folder.stat().st_mode & 0o005 != 0o005:
        raise MlrlError(f"sandbox.models_dir {configured} is not a folder that everybody can read: chmod -R o+rX it")
    return folder


def account_files(uids: Sequence[int]) -> dict[str, str]:
    """Files below /etc that name the program's user: libraries ask for it."""
    names = [(f"sandbox{index}", uid) for index, uid in enumerate(uids)]
    users = "".join(f"{name}:x:{uid}:{uid}:sandbox:/tmp:/bin/sh\n" for name, uid in names)
    groups = "".join(f"{name}:x:{uid}:\n" for name, uid in names)
    return {
        "passwd": f"root:x:0:0:root:/:/bin/false\n{users}",
        "group": f"root:x:0:\n{groups}",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    }
