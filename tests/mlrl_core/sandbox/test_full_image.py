"""The image ``full``: torch and what builds on it, under the filter. Skipped where it was not built
(``mlrl sandbox build full``); with MLRL_REQUIRE_FULL_IMAGE=1 that is a failure."""

from __future__ import annotations

import os
from pathlib import Path

import docker
import pytest

from mlrl_core.sandbox.image.archive import image_id
from mlrl_core.sandbox.image.build import archive_path, image_tag
from tests.mlrl_core.sandbox.conftest import Opener, load_archive
from tests.mlrl_core.sandbox.ordinary import FULL, TORCH
from tests.mlrl_core.sandbox.test_ordinary import check, tables

__all__ = ["tables"]  # the fixture
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def full_image(engine: str) -> str:
    """The image's name in the engine."""
    archive, tag = archive_path("full"), image_tag("full")
    if not archive.exists():
        reason = f"{archive.name} was not built (mlrl sandbox build full)"
        if os.environ.get("MLRL_REQUIRE_FULL_IMAGE") == "1":
            pytest.fail(f"MLRL_REQUIRE_FULL_IMAGE=1, but {reason}")
        pytest.skip(reason)
    client = docker.DockerClient(base_url=engine, timeout=900)
    try:
        load_archive(client, archive)
        assert client.images.get(tag).id == image_id(archive)
    finally:
        client.close()
    return tag


@pytest.mark.parametrize("name", [*TORCH, *FULL])
def test_in_docker(name: str, full_image: str, tables: Path, open_for_tests: Opener, tmp_path: Path) -> None:
    check("docker", {**TORCH, **FULL}[name], tables, open_for_tests, tmp_path, image=full_image)
