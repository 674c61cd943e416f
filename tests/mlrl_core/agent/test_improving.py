"""Which earlier solution is improved: sources, the draw, and what is no candidate."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mlrl_core.agent.improving import CANDIDATE_COLUMNS, Candidate, candidates_of, choose_parent, draw_rng
from mlrl_core.config import load_config
from mlrl_core.config.environment import HacksConfig
from mlrl_core.config.policy import ImproveConfig
from mlrl_core.experience.codec import schema, to_columns
from tests.fakes import experience


def candidate(wave: int, slot: int, reward: float, digest: str = "", competition: str = "toy") -> Candidate:
    name = f"{wave:05d}-{slot:03d}"
    return Candidate(name, competition, slot, reward, digest or name)


POOL = [
    candidate(1, 0, 0.3),
    candidate(1, 1, 0.9, "best"),
    candidate(2, 0, 0.1),
    candidate(2, 2, 0.9, "best"),
    candidate(3, 1, 0.5),
    candidate(3, 0, 5.0, competition="other"),
]


def chosen(slot: int, **settings: Any) -> str | None:
    config = ImproveConfig(**({"improve_prob": 1.0} | settings))
    parent = choose_parent(POOL, "toy", slot, config, draw_rng(0, 4, slot, "improve"))
    return parent.solution_id if parent else None


def test_the_last_valid_of_the_slot() -> None:
    assert [chosen(slot) for slot in range(4)] == ["00002-000", "00003-001", "00002-002", None]


def test_the_best_is_the_earlier_of_equals() -> None:
    assert {chosen(slot, improve_source="best") for slot in range(5)} == {"00001-001"}


def test_top_k_takes_each_program_once() -> None:
    two = {chosen(slot, improve_source="top_k", top_k=2) for slot in range(60)}
    assert two == {"00001-001", "00003-001"}
    everything = {chosen(slot, improve_source="top_k", top_k=99) for slot in range(60)}
    assert everything == {"00001-001", "00003-001", "00001-000", "00002-000"}


def test_nothing_to_improve() -> None:
    for source in ("slot_last_valid", "best", "top_k"):
        config = ImproveConfig(improve_prob=1.0, improve_source=source)  # type: ignore[arg-type]
        assert choose_parent([], "toy", 0, config, draw_rng(0, 1, 0, "improve")) is None


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 1.0])
def test_the_share_of_improve_prompts(probability: float) -> None:
    config = ImproveConfig(improve_prob=probability, improve_source="best")
    drawn = [choose_parent(POOL, "toy", s, config, draw_rng(7, w, s, "improve")) for w in range(20) for s in range(50)]
    assert sum(each is not None for each in drawn) / 1000 == pytest.approx(probability, abs=0.05)
    again = [choose_parent(POOL, "toy", s, config, draw_rng(7, w, s, "improve")) for w in range(20) for s in range(50)]
    assert drawn == again


def test_only_graded_programs_are_candidates() -> None:
    import polars as pl

    outcomes = ["graded", "error", "no_code", "infra_error", "timeout", "graded", "invalid_submission"]
    rows = [experience(2, slot, outcome, raw=-slot / 10) for slot, outcome in enumerate(outcomes)]
    # Hacks that cost something, whether or not the score was below the floor anyway, and one that costs nothing.
    hack = dataclasses.replace(experience(2, 7, "graded", raw=0.9, reward=-10.0), flags=("no_training",))
    rows += [hack, dataclasses.replace(experience(2, 8, "graded", raw=-30.0), flags=("sleeping", "sample_copy"))]
    rows.append(dataclasses.replace(experience(2, 9, "graded", raw=-0.9), flags=("sleeping",)))
    frame = pl.DataFrame([to_columns(row) for row in reversed(rows)], schema=schema()).select(CANDIDATE_COLUMNS)
    found = candidates_of(frame, HacksConfig())
    expected = [("00002-000", 0.0), ("00002-005", -0.5), ("00002-009", -0.9)]
    assert [(each.solution_id, each.reward) for each in found] == expected
    free = load_config("nano").hacks
    assert len(candidates_of(frame, free)) == 5  # where no hack costs anything all of those are
    older = frame.with_columns(flags=pl.lit(None, dtype=frame.schema["flags"]))
    assert len(candidates_of(older, HacksConfig())) == len(candidates_of(older, free)) == 5
    assert found[0].digest == found[1].digest  # the same code
    whatever = [each.solution_id for each in candidates_of(frame, HacksConfig(), whatever_came=True)]
    assert whatever == [f"00002-{slot:03d}" for slot in (0, 1, 2, 4, 5, 6, 7, 8, 9)]
