"""Ordinary programs end ``ok`` with a submission, at the default limits of memory, processes and files."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlrl_core.config.environment import SandboxConfig
from tests.mlrl_core.sandbox.conftest import Opener
from tests.mlrl_core.sandbox.ordinary import FULL, IMAGE_ONLY, TABULAR, TORCH, source

DEFAULTS = SandboxConfig()
ROWS = 100_000
QUICK = ["grid_search_two_jobs", "multiprocessing_pool", "shared_memory", "matplotlib_to_file", "progress_bar"]


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """100,000 rows of ten features, as monthly tabular competitions have, and 500 JPEGs."""
    from matplotlib import image

    folder = tmp_path_factory.mktemp("ordinary")
    generator = np.random.default_rng(0)
    features = pd.DataFrame(generator.normal(size=(ROWS, 10)), columns=[f"f{n}" for n in range(10)])
    features.insert(0, "id", np.arange(ROWS))
    features[5000:].assign(
        target=(features.f0 + features.f1 * features.f2 + generator.normal(size=ROWS) > 0).astype(int)
    ).to_csv(folder / "train.csv", index=False)
    features[:5000].to_csv(folder / "test.csv", index=False)
    (folder / "images").mkdir()
    for number in range(500):
        image.imsave(folder / "images" / f"{number}.jpg", generator.integers(0, 255, (200, 200, 3), dtype=np.uint8))
    folder.chmod(0o755)
    return folder


def check(
    backend: str, body: str, tables: Path, open_for_tests: Opener, tmp_path: Path, image: str = DEFAULTS.image
) -> None:
    memory = min(DEFAULTS.memory_mb, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 << 20) - 2048)
    sandbox = open_for_tests(
        backend,
        **{name: getattr(DEFAULTS, name) for name in ("time_limit_s", "pids", "nofile", "out_mb", "tmp_mb", "shm_mb")},
        memory_mb=memory,
        image=image,
    )
    result = sandbox.run(source(body), tables, collect_to=tmp_path / "submission.csv")
    assert (result.status, result.submission_state) == ("ok", "ok"), result.stderr.tail[-2000:]
    assert len(pd.read_csv(tmp_path / "submission.csv")) == 5000
    assert not result.oom_seen
    assert not result.output_lost


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in TABULAR if n not in QUICK)]
)
def test_in_bubblewrap(name: str, tables: Path, open_for_tests: Opener, tmp_path: Path) -> None:
    if "tqdm" in TABULAR[name] and importlib.util.find_spec("tqdm") is None:
        pytest.skip("this environment has no tqdm")
    check("bubblewrap", TABULAR[name], tables, open_for_tests, tmp_path)


SLOW_TORCH = ["torch_filter_and_threads", "torch_shares_tensors_between_processes"]


@pytest.mark.parametrize("name", [*TORCH, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_TORCH)])
def test_torch_in_bubblewrap(name: str, tables: Path, open_for_tests: Opener, tmp_path: Path) -> None:
    check("bubblewrap", {**TORCH, **FULL}[name], tables, open_for_tests, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TABULAR, *IMAGE_ONLY])
def test_in_docker(name: str, tables: Path, open_for_tests: Opener, tmp_path: Path) -> None:
    check("docker", {**TABULAR, **IMAGE_ONLY}[name], tables, open_for_tests, tmp_path)
