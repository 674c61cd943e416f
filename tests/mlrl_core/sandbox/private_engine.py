"""An engine of our own for the tests, where none answers: it changes nothing on the host and ends by its pid."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlrl_core.sandbox.helper.linux import PR_SET_PDEATHSIG, set_process_flag, unmount
from mlrl_core.sandbox.image.build import image_cache
from tests.leftovers import KEPT


def why_not() -> str:
    """Why a private engine can't be started here; empty when it can."""
    if os.geteuid() != 0:
        return "not root"
    return "" if shutil.which("dockerd") else "dockerd is not installed"


def answering_url() -> str:
    """The engine that answers at the usual place, or empty."""
    url = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    import docker

    try:
        client = docker.DockerClient(base_url=url, timeout=5)
        client.ping()
        client.close()
    except Exception:
        return ""
    return url


@contextmanager
def private_engine() -> Iterator[str]:
    """Start dockerd without bridge, firewall rules and forwarding; yields its URL.

    Its images stay in the cache, so that the sandbox's image is loaded once; a second engine at the same time gets
    a data folder of its own.
    """
    # Socket paths end at 107 bytes, so the folder's name is short.
    folder = Path(tempfile.mkdtemp(prefix="mlrl-e", dir="/tmp"))
    data = image_cache() / "engine"
    data.mkdir(exist_ok=True)
    lock = (data / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        data = folder
    log = (folder / "log").open("wb")
    url = f"unix://{folder}/sock"
    process = subprocess.Popen(
        [
            "dockerd",
            *("--host", url, "--data-root", f"{data}/root", "--exec-root", f"{folder}/exec"),
            *("--pidfile", f"{folder}/pid", "--bridge", "none", "--iptables=false", "--ip6tables=false"),
            *("--ip-forward=false", "--ip-masq=false"),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # a terminal's Ctrl-C is the tests' to handle
        preexec_fn=lambda: set_process_flag(PR_SET_PDEATHSIG, signal.SIGTERM),  # a killed test run leaves no engine
    )
    KEPT.add(process.pid)
    try:
        import docker

        end = time.monotonic() + 60
        while True:
            try:
                docker.DockerClient(base_url=url, timeout=5).ping()
                break
            except Exception as error:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"dockerd did not start: {(folder / 'log').read_text()[-500:]}") from error
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        with contextlib.suppress(OSError):  # an engine that had to be killed leaves its data folder's own mount
            unmount(f"{data}/root")
        log.close()
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)
