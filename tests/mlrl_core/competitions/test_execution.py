"""What a competition asks of the sandbox holds unless the profile or the user says otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mlrl_core.competitions import Competition, ExecutionSettings, prepare_competition, with_execution_settings
from mlrl_core.config import RunConfig, load_config, load_run_config
from mlrl_core.errors import MlrlError
from mlrl_core.experience import RunDirectory


@pytest.fixture
def competition(tmp_path: Path) -> Competition:
    return prepare_competition("micro-regression", tmp_path)


def asking(competition: Competition, **execution: object) -> Competition:
    return dataclasses.replace(competition, execution=ExecutionSettings(**execution))  # type: ignore[arg-type]


def test_the_competitions_own_limits_are_honoured(competition: Competition, tmp_path: Path) -> None:
    wishes = asking(competition, time_limit_s=1200.0, cpus=2.0, memory_mb=4096, image="theirs:1")
    config = with_execution_settings(load_config("default"), [wishes])
    sandbox = config.sandbox
    assert (sandbox.time_limit_s, sandbox.cpus, sandbox.memory_mb, sandbox.image) == (1200.0, 2.0, 4096, "theirs:1")
    run = RunDirectory.create(tmp_path / "run", config)  # a resumed run keeps them
    assert load_run_config(run.path / "config.toml") == config


@pytest.mark.parametrize("overrides", [["sandbox.time_limit_s=60"], ["sandbox.time_limit_s=600"]])
def test_what_the_user_sets_wins_even_where_it_equals_the_default(
    overrides: list[str], competition: Competition
) -> None:
    config = load_config("default", overrides)
    found = with_execution_settings(config, [asking(competition, time_limit_s=1200.0, memory_mb=2048)])
    assert found.sandbox.time_limit_s == config.sandbox.time_limit_s
    assert found.sandbox.memory_mb == 2048


def test_what_the_profile_sets_wins(competition: Competition) -> None:
    config = load_config("nano")
    assert with_execution_settings(config, [asking(competition, time_limit_s=1200.0)]).sandbox == config.sandbox


def test_without_wishes_nothing_changes(competition: Competition) -> None:
    config = load_config("default")
    assert with_execution_settings(config, [competition]) is config


def test_of_several_competitions_the_largest_limit_counts(competition: Competition) -> None:
    def limit(*wishes: float | None) -> float:
        asked = [asking(competition, time_limit_s=wish) for wish in wishes]
        return with_execution_settings(load_config("default"), asked).sandbox.time_limit_s

    assert limit(60, 1200) == 1200
    assert limit(60, 120) == 120
    assert limit(60, None) == RunConfig().sandbox.time_limit_s


def test_two_images_need_a_decision(competition: Competition) -> None:
    both = [asking(competition, image="a"), asking(competition, image="b")]
    with pytest.raises(MlrlError, match=r"images a, b: set sandbox\.image"):
        with_execution_settings(load_config("default"), both)
    assert with_execution_settings(load_config("default", ["sandbox.image=c"]), both).sandbox.image == "c"


def test_gpus_need_devices(competition: Competition) -> None:
    with pytest.raises(MlrlError, match=r"asks for 1 GPU, .*sandbox\.gpus"):
        with_execution_settings(load_config("default"), [asking(competition, gpus=1)])
    leased = load_config("default", ["sandbox.gpus=['GPU-1']"])
    assert with_execution_settings(leased, [asking(competition, gpus=1)]) is leased
    with pytest.raises(MlrlError, match="asks for 2 GPUs, but a program gets one"):
        with_execution_settings(leased, [asking(competition, gpus=2)])


def test_a_new_run_uses_them(competition: Competition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in: the command and the flow."""
    from flows import train as flow
    from mlrl_core.commands import train as command

    wishes = [asking(competition, time_limit_s=1200.0)]
    monkeypatch.setattr(flow, "open_competitions", lambda _: wishes)
    run = flow._open_or_create("default", "micro-regression", 0, [], str(tmp_path / "flow"))
    assert run.load_config().sandbox.time_limit_s == 1200
    monkeypatch.setattr(command, "_check", lambda *_: wishes)
    started: list[RunConfig] = []
    monkeypatch.setattr(command, "_run", lambda _console, run, _config: started.append(run.load_config()) or 0)
    assert command.train("default", "micro-regression", tmp_path / "command", None, None, [], False) == 0
    assert started[0].sandbox.time_limit_s == 1200
