"""Two hundred programs behave as written, whoever places the prints."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mlrl_core.instrumentation import MILESTONES, VALUED, FrozenModel, Inserter, instrument
from mlrl_core.instrumentation.lm_lines import places_by_lines
from mlrl_core.instrumentation.placement import place_milestones
from mlrl_core.sandbox.output import MilestoneFilter
from tests.mlrl_core.instrumentation.marked import marked_programs, placed_right, settled_places
from tests.mlrl_core.instrumentation.scripted import MarkedLines, RandomLines, Rewriter
from tests.mlrl_core.instrumentation.varied import run_program, varied_programs, write_inputs

NONCE = "#mlrl:0123456789abcdef:"
PROGRAMS = varied_programs()
MARKED = marked_programs()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("varied")
    write_inputs(made)
    return made


@pytest.fixture(scope="module")
def originals(folder: Path) -> list[tuple[str, bytes]]:
    return [run_program(code, folder) for code in PROGRAMS]


def filtered(printed: str, labels: tuple[str, ...]) -> tuple[str, list[str]]:
    """What the sandbox keeps of an output, and the milestones that it saw."""
    milestones = MilestoneFilter(NONCE, labels)
    kept = milestones.feed(printed.encode()) + milestones.finish()
    return kept.decode(), milestones.seen


def test_they_are_two_hundred_and_all_run(originals: list[tuple[str, bytes]]) -> None:
    assert len(set(PROGRAMS)) == len(originals) == 200
    assert all(submission.count(b"\n") >= 3 for _, submission in originals)


@pytest.mark.parametrize("inserter", ["ast", "lm_lines", "lm_rewrite"])
def test_same_output_and_submission(inserter: Inserter, originals: list[tuple[str, bytes]], folder: Path) -> None:
    fallbacks = milestones = 0
    for number, (code, (stdout, submission)) in enumerate(zip(PROGRAMS, originals, strict=True)):
        model: FrozenModel | None = {"lm_lines": RandomLines(number), "lm_rewrite": Rewriter(number)}.get(inserter)
        program = instrument(code, inserter, NONCE, model, on_failure="original")
        fallbacks += program.fallback_reason is not None
        printed, sent = run_program(program.source, folder)
        kept, seen = filtered(printed, program.milestones)
        assert kept == stdout, code
        assert sent == submission, code
        assert all(printed.count(f"{NONCE} {label}") <= 1 for label in set(MILESTONES) - VALUED)
        milestones += len(seen)
    assert fallbacks == 0
    assert milestones > (700 if inserter == "ast" else 300)


def test_a_model_that_changes_the_program_changes_nothing(originals: list[tuple[str, bytes]], folder: Path) -> None:
    for number, (code, (stdout, submission)) in list(enumerate(zip(PROGRAMS, originals, strict=True)))[:40]:
        original = instrument(code, "lm_rewrite", NONCE, Rewriter(number, spoil=True), on_failure="original")
        assert (original.source, original.inserter, original.milestones) == (code, "none", ())
        assert original.fallback_reason == "the answer is not the same program"
        by_rule = instrument(code, "lm_rewrite", NONCE, Rewriter(number, spoil=True), on_failure="ast")
        assert by_rule.inserter == "ast"
        assert by_rule.fallback_reason == "the answer is not the same program"
        assert by_rule.milestones
        printed, sent = run_program(by_rule.source, folder)
        assert filtered(printed, by_rule.milestones)[0] == stdout
        assert sent == submission


def test_the_rules_place_what_a_person_would_mark() -> None:
    marks = sum(len(program.marks) for program in MARKED)
    right = sum(len(placed_right(program, settled_places(program, place_milestones))) for program in MARKED)
    assert len(MARKED) == 40
    assert right / marks >= 0.9, f"{right} of {marks}"


def test_the_rules_place_little_that_a_person_would_not() -> None:
    extra = [set(place_milestones(ast.parse(program.code))) - set(program.marks) for program in MARKED]
    assert sum(map(len, extra)) <= 4


def test_a_model_that_knows_the_marks_gets_them_placed() -> None:
    """Every mark can be expressed by a choice of lines, but for a number that no line assigns to a name."""
    for program in MARKED:
        model = MarkedLines(program.code, program.marks)
        assert instrument(program.code, "lm_lines", NONCE, model).fallback_reason is None
        settled = settled_places(program, lambda tree, p=program, m=model: places_by_lines(p.code, tree, m))  # type: ignore[misc]
        assert placed_right(program, settled) == set(program.marks), program.name
        assert set(settled) == set(program.marks), program.name


def test_every_marked_label_is_a_milestone() -> None:
    assert {label for program in MARKED for label in program.marks} == set(MILESTONES)
