"""The temporary Prefect server: ends with its parent, whenever that dies; configured servers are found and checked."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows import server
from mlrl_core.errors import MlrlError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("after_s", [0.2, 3.0])
def test_a_killed_parent_leaves_no_server(tmp_path: Path, after_s: float) -> None:
    script = (
        "import sys, os, threading, time; from pathlib import Path; from flows.server import prefect_api\n"
        "def die():\n    time.sleep(float(sys.argv[2])); os.kill(os.getpid(), 9)\n"
        "threading.Thread(target=die).start()\n"
        "with prefect_api(Path(sys.argv[1])):\n    time.sleep(60)\n"
    )
    env = {"PREFECT_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "log"), str(after_s)], env=env, cwd=ROOT)
    servers: list[psutil.Process] = []
    while parent.poll() is None:
        try:
            servers = psutil.Process(parent.pid).children() or servers
        except psutil.Error:
            break
        time.sleep(0.02)
    parent.wait(10)
    assert servers
    _gone, alive = psutil.wait_procs(servers, timeout=30)
    assert not alive


def test_the_configured_server_comes_from_environment_or_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert server.configured_api() == ""
    profiles = 'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n[profiles.other]\n'
    (tmp_path / "profiles.toml").write_text(profiles)
    assert server.configured_api() == "http://127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_PROFILE", "other")
    assert server.configured_api() == ""
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:8/api")
    with pytest.raises(MlrlError, match=r"127\.0\.0\.1:8/api does not answer"):
        server.check_configured_api()
