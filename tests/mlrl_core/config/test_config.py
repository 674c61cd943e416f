"""Configuration: closed, written once, and errors that name the right key."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.config import RunConfig, config_digest, dump_toml, load_config, load_run_config, profile_names
from mlrl_core.errors import MlrlError


@pytest.mark.parametrize("profile", profile_names())
def test_every_profile_loads_and_survives_its_own_file(profile: str, tmp_path: Path) -> None:
    config = load_config(profile, ['competition.data_dir=/a "b"/ü', "sampling.temperature=0.7"], seed=3)
    path = tmp_path / "config.toml"
    path.write_text(dump_toml(config))
    assert load_run_config(path) == config
    assert config_digest(load_run_config(path)) == config_digest(config)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ppo.learning_rat=1", "did you mean 'ppo.learning_rate'"),
        ("learning_rate=1", "did you mean '"),
        ("ppo.clip=2", "ppo.clip"),
        ("ppo.clip=nan", "ppo.clip"),
        ("steps=0", "steps"),
        ("steps", "key=value"),
        ("batch.size=7", "wave_size"),
        ("reward.failure=-5", "reward.valid_floor"),
        ("reward.map_power=2", "map_power needs reward_map = bounded or board_rank"),
        ("sandbox.backend=podman", "sandbox.backend"),
        ("policy.lora.r=7", "policy.lora.r"),
        ("wave_size=129", "wave_size"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(override: str, message: str) -> None:
    with pytest.raises(MlrlError) as caught:
        load_config("default", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_below_a_value_is_one_line() -> None:
    with pytest.raises(MlrlError, match="is a value, not a section"):
        load_config("default", ["steps=3", "steps.x=1"])


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(MlrlError, match="did you mean 'nano'"):
        load_config("nanno")


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("steps = 5\n[ppo]\nclip = 0.1\n")
    config = load_config(str(path))
    assert (config.steps, config.ppo.clip) == (5, 0.1)
    path.write_text("steps = \n")
    with pytest.raises(MlrlError, match="not valid TOML"):
        load_config(str(path))
    with pytest.raises(MlrlError, match="unknown profile"):
        load_config(str(tmp_path / "none.toml"))


def test_the_configuration_never_changes_after_loading() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError):
        load_config("nano").steps = 5  # type: ignore[misc]


def test_the_digest_sees_every_value_and_not_the_order() -> None:
    assert config_digest(load_config("nano")) != config_digest(load_config("nano", seed=1))
    assert config_digest(load_config("nano", ["steps=3", "seed=4"])) == config_digest(
        load_config("nano", ["seed=4", "steps=3"])
    )


def test_a_broken_run_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("x = [")
    with pytest.raises(MlrlError, match="can't be read"):
        load_run_config(path)
    path.write_text("unknown = 1\n")
    with pytest.raises(MlrlError, match="unknown configuration key"):
        load_run_config(path)


def test_class_defaults_are_the_default_profile() -> None:
    assert load_config("default") == RunConfig()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batch.batch_policy=window"], "window_s"),
        (["batch.batch_policy=first_k_discard", "batch.size=200"], "raise wave_size"),
        (
            ["batch.batch_policy=first_k_carry", "batch.size=16", "batch.max_staleness=3"],
            "batch.max_staleness (3) to 7",
        ),
        (["batch.duration_weighting=reward_rate", "batch.duration_floor_s=0"], "duration_floor_s"),
        (["improve.episode=two_step", "improve.improve_prob=0.3"], "improve: improve_prob = 0.3"),
        (["improve.episode=two_step", "improve.improve_source=best"], "improve: improve_source = best"),
        (["improve.episode=two_step", "wave_size=15", "batch.size=15"], "needs even numbers"),
        (
            ["improve.episode=two_step", "batch.batch_policy=first_k_carry", "wave_size=16", "batch.size=7"],
            "needs even numbers",
        ),
    ],
)
def test_a_batch_policy_that_can_never_make_a_batch_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(MlrlError) as caught:
        load_config("default", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
