"""Where vLLM is looked for, and what one is told where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.generation.vllm import environment
from mlrl_core.generation.vllm.adapters import served_rank


def test_only_a_finished_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLRL_CACHE", str(tmp_path))
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    folder = environment.environment_dir()
    folder.mkdir()
    with pytest.raises(MlrlError, match="make vllm"):
        environment.find_python()
    (folder / "DONE").touch()
    assert environment.find_python() == folder / "bin" / "python"
    assert environment.find_python(sys.executable) == Path(sys.executable)
    with pytest.raises(MlrlError, match="no program is there"):
        environment.find_python("/nowhere/python")


@pytest.mark.parametrize("place", ["gpu0", "cuda", "cpu:x", "localhost:8000", "http://a b"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(MlrlError, match="is no server"):
        load_config("nano", [f'generation.servers=["{place}"]'])


def test_a_rank_is_rounded_up_to_one_that_is_served() -> None:
    assert [served_rank(each) for each in (1, 8, 12, 64, 129)] == [1, 8, 16, 64, 256]
    with pytest.raises(MlrlError, match="up to rank 512"):
        served_rank(513)
