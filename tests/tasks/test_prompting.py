"""The prompts of a wave: decided once, kept in the run directory, the same after a kill."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mlrl_core.agent import PromptWriter
from mlrl_core.config import RunConfig, load_config
from mlrl_core.config.environment import SandboxConfig
from mlrl_core.config.policy import PromptConfig
from mlrl_core.errors import MlrlError
from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.experience.plans import read_plan
from tasks.prompting import WavePrompts
from tests.fakes import experience
from tests.flows.conftest import make_run
from tests.mlrl_core.agent.test_prompts import Toy


def encode(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def decoded(ids: tuple[int, ...]) -> str:
    return bytes(ids).decode()


def writer(max_tokens: int = 5000) -> PromptWriter:
    return PromptWriter(
        competition=Toy(),
        sample="id,price\n1,0.5\n",
        sample_path="./input/sample_submission.csv",
        limits=SandboxConfig(),
        config=PromptConfig(max_tokens=max_tokens),
        short=False,
        count_tokens=lambda text: len(text.split()),
    )


def prompts(run: RunDirectory, max_tokens: int = 5000) -> WavePrompts:
    return WavePrompts(run.load_config(), run, {"toy": writer(max_tokens)}, encode)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path / "run", "improve.improve_prob=0.5", "prompt.max_tokens=5000")


def fill(run: RunDirectory, wave: int) -> None:
    store = ExperienceStore(run)
    for slot in range(6):
        outcome = "error" if slot == 5 else "graded"
        store.append(experience(wave, slot, outcome, raw=slot / 10, code=f"x = {wave}{slot}\nprint('{wave}-{slot}')\n"))
    store.compact(wave)


def test_the_first_wave_solves(run: RunDirectory) -> None:
    made = prompts(run)(1, range(6))
    assert len(made) == 6
    assert {(p.kind, p.parent_id, p.competition_id, p.ids) for p in made} == {
        ("solve", None, "toy", encode(writer().solve))
    }


def test_later_waves_improve_what_their_slot_has_made(run: RunDirectory) -> None:
    ask = prompts(run)
    kinds: list[str] = []
    for wave in range(1, 9):
        made = ask(wave, range(6))
        for slot, prompt in enumerate(made):
            kinds.append(prompt.kind)
            if prompt.kind == "improve":
                assert prompt.parent_id == f"{wave - 1:05d}-{slot:03d}"
                assert prompt.parent_reward == slot / 10
                text = decoded(prompt.ids)
                assert f"print('{wave - 1}-{slot}')" in text
                assert f"It scored {slot / 10:.5g} (rmsle, lower is better)." in text
        assert made[5].kind == "solve"  # its slot has only failed
        fill(run, wave)
    assert 10 <= kinds.count("improve") <= 30


def test_a_plan_stays_when_more_becomes_known(run: RunDirectory) -> None:
    fill(run, 1)
    before = prompts(run)(2, range(6))
    late = experience(1, 6, "graded", raw=9.0)
    (run.experiences / "wave=00001.parquet").rename(run.path / "kept.parquet")
    ExperienceStore(run).append(late)
    assert read_plan(run, 2) is not None
    (run.path / "kept.parquet").rename(run.experiences / "wave=00001.parquet")
    fill(run, 2)
    again = prompts(run)(2, range(6))  # another process, after a kill
    assert again == before
    assert [p.parent_id for p in again if p.kind == "improve"]


def test_rows_of_an_open_wave_count_as_they_come(run: RunDirectory) -> None:
    store = ExperienceStore(run)
    ask = prompts(run)
    store.append(experience(1, 0, "graded"))
    assert ask._candidates(3)[-1].solution_id == "00001-000"
    store.append(experience(1, 1, "graded"))
    assert [c.solution_id for c in ask._candidates(3)] == ["00001-000", "00001-001"]
    assert ask._candidates(1) == []


def test_switched_off_every_prompt_solves(tmp_path: Path) -> None:
    run = make_run(tmp_path / "off")
    assert run.load_config().improve.improve_prob == 0
    fill(run, 1)
    assert {p.kind for p in prompts(run)(2, range(6))} == {"solve"}


def test_a_budget_that_no_improve_prompt_fits_is_refused_at_once(run: RunDirectory) -> None:
    with pytest.raises(MlrlError, match=r"prompt\.max_tokens = 150 is too small.*improve\.improve_prob to 0"):
        prompts(run, 150)


def test_an_episode_improves_its_own_solution_whatever_came_of_it(tmp_path: Path) -> None:
    settings = ["improve.improve_prob=0.5", "improve.episode=two_step", "prompt.max_tokens=5000"]
    run = make_run(tmp_path / "run", *settings)
    ask, store = prompts(run), ExperienceStore(run)
    first = ask(2, (0, 2, 4))
    assert {(prompt.kind, prompt.parent_id) for prompt in first} == {("solve", None)}
    plan = read_plan(run, 2)
    assert plan is not None
    assert [slot.parent_id for slot in plan] == [None, "00002-000", None, "00002-002", None, "00002-004"]
    for slot, outcome in ((0, "graded"), (2, "timeout"), (4, "no_code")):
        store.append(experience(2, slot, outcome, raw=0.25, code=f"print('mine {slot}')\n"))
    second = ask(2, (1, 3, 5))
    assert [(p.kind, p.parent_id, p.parent_reward) for p in second] == [
        ("improve", "00002-000", 0.25),
        ("improve", "00002-002", -10.0),
        ("improve", "00002-004", -10.0),
    ]
    texts = [decoded(prompt.ids) for prompt in second]
    assert "print('mine 0')" in texts[0]
    assert "It scored 0.25" in texts[0]
    assert "print('mine 2')" in texts[1]
    assert "the time limit" in texts[1]
    assert "an earlier answer to this task" in texts[2]
    assert "It held no program." in texts[2]
    assert "The earlier program" not in texts[2]
    assert prompts(run)(2, (3,)) == [second[1]]  # another process, after a kill
    with pytest.raises(MlrlError, match=r"too small.*improve\.episode to independent and improve\.improve_prob to 0"):
        prompts(run, 150)


def test_the_default_profile_improves_half_the_time() -> None:
    assert RunConfig().improve.improve_prob == 0.5


def test_prompts_of_several_competitions_share_a_wave(tmp_path: Path) -> None:
    settings = [
        "policy.model=some/model",
        "warmstart.demonstrations=0",
        "improve.improve_prob=1.0",
        "competition.others=['two', 'three']",
    ]
    run = make_run(tmp_path / "several", *settings)
    config = run.load_config()
    writers = {
        name: dataclasses.replace(writer(), competition=Toy(id=name, description=f"About {name}."))
        for name in config.competition.ids
    }
    ask = WavePrompts(config, run, writers, encode)
    first = ask(1, range(6))
    assert [p.competition_id for p in first] == ["toy", "two", "three"] * 2
    for prompt in first:
        assert f"About {prompt.competition_id}." in decoded(prompt.ids)
    store = ExperienceStore(run)
    for slot, prompt in enumerate(first[:5]):
        row = experience(1, slot, raw=slot / 10)
        solution = dataclasses.replace(row.solution, competition_id=prompt.competition_id)
        store.append(dataclasses.replace(row, solution=solution))
    store.compact(1)
    second = ask(2, range(6))
    assert [p.competition_id for p in second] == ["toy", "two", "three"] * 2
    assert [p.parent_id for p in second] == [*(f"00001-{slot:03d}" for slot in range(5)), None]


def test_several_competitions_are_a_matter_of_configuration() -> None:
    with pytest.raises(MlrlError, match="names a competition twice"):
        load_config("default", ["competition.id=a", "competition.others=['b', 'a']"])
    with pytest.raises(MlrlError, match=r"competition\.others needs a policy without a warm start"):
        load_config("nano", ["competition.others=['titanic']"])
    config = load_config("default", ["competition.id=a", "competition.others=['b']"])
    assert [config.competition_of_slot(slot) for slot in range(3)] == ["a", "b", "a"]


def test_both_actions_of_an_episode_are_about_one_competition() -> None:
    two = ["competition.id=a", "competition.others=['b']", "improve.episode=two_step"]
    config = load_config("default", two)
    assert [config.competition_of_slot(slot) for slot in range(6)] == ["a", "a", "b", "b", "a", "a"]
