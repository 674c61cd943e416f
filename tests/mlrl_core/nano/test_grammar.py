"""Demonstrations: what they look like, what they decide, and that they come from public data alone."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from mlrl_core.agent import parse_response
from mlrl_core.errors import MlrlError
from mlrl_core.nano.facts import TaskFacts, read_facts
from mlrl_core.nano.families import FAMILIES
from mlrl_core.nano.grammar import MISTAKES, write_demonstration

DIAMONDS = TaskFacts("diamonds", "regression", "id", "price", ("cut", "color"), ("carat", "depth"), True)
CANCER = TaskFacts("breast-cancer", "binary", "id", "target", (), ("radius",), False)
COUNT = 4000


@pytest.mark.parametrize("facts", [DIAMONDS, CANCER], ids=["regression", "binary"])
def test_shares_are_those_that_are_declared(facts: TaskFacts) -> None:
    rng = Random(0)
    drawn = [write_demonstration(facts, rng) for _ in range(COUNT)]
    families = Counter(d.estimator for d in drawn)
    for family in FAMILIES[facts.kind]:
        assert families[family.estimator] / COUNT == pytest.approx(family.share, abs=0.025)
    mistakes = Counter(d.mistake for d in drawn)
    for mistake, share in MISTAKES.items():
        assert mistakes[mistake] / COUNT == pytest.approx(share, abs=0.025)
    assert mistakes[None] / COUNT == pytest.approx(1 - sum(MISTAKES.values()), abs=0.03)


@pytest.mark.parametrize("facts", [DIAMONDS, CANCER], ids=["regression", "binary"])
def test_a_program_parses_unless_the_mistake_is_its_syntax(facts: TaskFacts) -> None:
    rng = Random(1)
    for _ in range(500):
        demonstration = write_demonstration(facts, rng)
        parsed = parse_response(demonstration.response)
        assert parsed.code is not None
        assert parsed.plan.startswith("Plan: ")
        try:
            ast.parse(parsed.code)
            broken = False
        except SyntaxError:
            broken = True
        assert broken == (demonstration.mistake == "syntax")
        assert f"{demonstration.estimator}(" in parsed.code


def test_the_best_families_are_rare() -> None:
    for families in FAMILIES.values():
        assert sum(f.share for f in families) == pytest.approx(1.0)
        assert all(f.share < 0.10 for f in families if f.module == "ensemble")


def test_the_same_seed_writes_the_same_text() -> None:
    first = [write_demonstration(DIAMONDS, Random(7)).response for _ in range(2)]
    assert first[0] == first[1]
    assert write_demonstration(DIAMONDS, Random(8)).response != first[0]


def write_public(folder: Path, train: str, sample: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text(train)
    (folder / "sample_submission.csv").write_text(sample)
    return folder


def test_facts_come_from_the_public_folder(tmp_path: Path) -> None:
    public = write_public(tmp_path / "public", "id,carat,cut,price\n1,.3,Good,300\n2,.4,Fair,400\n", "id,price\n3,0\n")
    facts = read_facts("toy", "rmsle", public)
    assert facts == TaskFacts("toy", "regression", "id", "price", ("cut",), ("carat",), True)
    assert not read_facts("toy", "auc", public).positive_target  # a class is not a size


@pytest.mark.parametrize(
    ("metric", "train", "message"),
    [
        ("accuracy", "id,a,y\n1,2,3\n", "accuracy"),
        ("rmsle", "id,a,other\n1,2,3\n", "one id and one target"),
    ],
)
def test_competitions_without_words_for_them_are_refused(tmp_path: Path, metric: str, train: str, message: str) -> None:
    public = write_public(tmp_path / "public", train, "id,y\n1,0\n")
    with pytest.raises(MlrlError, match=message):
        read_facts("toy", metric, public)
