from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.experience import RunDirectory


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Prefect server for the whole test run, with a database of its own."""
    from flows.server import prefect_api

    home = tmp_path_factory.mktemp("prefect")
    patch = pytest.MonkeyPatch()
    patch.setenv("PREFECT_HOME", str(home))
    patch.delenv("PREFECT_API_URL", raising=False)
    with prefect_api(home / "server.log") as url:
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings({PREFECT_API_URL: url}):
            yield url
    patch.undo()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A small run: 3 steps of 6 solutions."""
    return make_run(tmp_path / "run")


def make_run(path: Path, *overrides: str) -> RunDirectory:
    small = ["steps=3", "wave_size=6", "batch.size=6", "competition.id=toy", "tracking.enabled=false"]
    return RunDirectory.create(path, load_config("nano", [*small, *overrides]))
