"""Prepared MLE-bench data: loading, boards, leaks, the suite check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlrl_core.competitions import grade, load_competition, open_competition
from mlrl_core.competitions.board import BoardError
from mlrl_core.competitions.checks import check_competition, check_paper12
from mlrl_core.competitions.mlebench import PAPER12
from mlrl_core.config.environment import CompetitionConfig
from mlrl_core.errors import MlrlError

PIZZA, SPOOKY = "random-acts-of-pizza", "spooky-author-identification"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLRL_DATA", str(tmp_path / "cache" / "data"))


def prepare_pizza(data: Path) -> Path:
    public, private = (data / PIZZA / "prepared" / part for part in ("public", "private"))
    for folder in (public / "deep", private):
        folder.mkdir(parents=True)
    records = [{"request_id": f"t{i}", "giver_username_if_known": "N/A", "request_text": "é"} for i in range(4)]
    (public / "test.json").write_text(json.dumps(records))
    (public / "train.json").write_text(json.dumps([r | {"requester_received_pizza": True} for r in records]))
    (public / "train.zip").write_bytes(b"PK")
    (public / "deep" / "table.csv").write_text("a,giver_username_if_known,b\n1,x,2\n")
    (public / "description.md").write_text("# Pizza")
    (public / "sampleSubmission.csv").write_text(
        "request_id,requester_received_pizza\n" + "".join(f"t{i},0\n" for i in range(4))
    )
    (private / "test.csv").write_text(
        "request_id,requester_received_pizza\n" + "".join(f"t{i},{i % 2 == 0}\n" for i in range(4))
    )
    return public


def test_the_leaking_field_is_dropped_from_everything_that_a_program_sees(tmp_path: Path) -> None:
    public = prepare_pizza(tmp_path)
    competition = load_competition(PIZZA, tmp_path)
    assert competition.public_dir != public
    texts = {p.name: p.read_text() for p in competition.public_dir.rglob("*") if p.is_file()}
    assert set(texts) == {"test.json", "train.json", "table.csv", "description.md", "sampleSubmission.csv"}
    assert not any("giver_username" in text for text in texts.values())
    assert json.loads(texts["train.json"])[0] == {
        "request_id": "t0",
        "request_text": "é",
        "requester_received_pizza": True,
    }
    assert texts["table.csv"] == "a,b\n1,2\n"
    assert "giver_username" in (public / "train.json").read_text()  # the user's own data stay as they are
    assert load_competition(PIZZA, tmp_path).public_dir == competition.public_dir
    assert grade(competition, competition.sample_submission_path).raw == 0.5


def test_keeping_the_leak_flags_every_score(tmp_path: Path) -> None:
    public = prepare_pizza(tmp_path)
    competition = load_competition(PIZZA, tmp_path, keep_leaks=True)
    assert competition.public_dir == public
    score = grade(competition, competition.sample_submission_path)
    assert any("giver_username_if_known" in warning for warning in score.warnings)


def test_boards_are_found_beside_the_data_in_a_folder_and_in_a_checkout(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepare_pizza(data)
    assert load_competition(PIZZA, data).board is None
    boards = tmp_path / "boards"
    for place in (boards / PIZZA, tmp_path / "checkout" / "mlebench" / "competitions" / PIZZA):
        place.mkdir(parents=True)
        (place / "leaderboard.csv").write_text("score\n0.9\n0.1\n")
    for root in (boards, tmp_path / "checkout"):
        board = load_competition(PIZZA, data, boards_dir=root).board
        assert board is not None
        assert board.scores == (0.9, 0.1)
    (data / PIZZA / "leaderboard.csv").write_text("version https://git-lfs.github.com/spec/v1\noid x\nsize 1\n")
    with pytest.raises(BoardError, match="git lfs pull"):
        load_competition(PIZZA, data)


def test_missing_parts_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match=f"mlebench prepare -c {PIZZA}"):
        load_competition(PIZZA, tmp_path)
    public = prepare_pizza(tmp_path)
    (public.parent / "private" / "test.csv").unlink()
    with pytest.raises(MlrlError, match="mlebench prepare"):
        load_competition(PIZZA, tmp_path)


def test_a_sample_that_is_a_link_to_private_files_is_refused(tmp_path: Path) -> None:
    public = prepare_pizza(tmp_path)
    (public / "sampleSubmission.csv").unlink()
    (public / "sampleSubmission.csv").symlink_to("../private/test.csv")
    with pytest.raises(MlrlError, match=r"leads out of prepared/public"):
        load_competition(PIZZA, tmp_path)


def test_check_finds_what_would_break_a_run(tmp_path: Path) -> None:
    public = prepare_pizza(tmp_path)
    competition = load_competition(PIZZA, tmp_path)
    assert not [f for f in check_competition(competition) if f.level == "error"]
    private = public.parent / "private" / "test.csv"
    private.write_text("request_id,requester_received_pizza\nt0,True\nt1,True\n")
    texts = [f.text for f in check_competition(load_competition(PIZZA, tmp_path)) if f.level != "ok"]
    assert any("rows" in text for text in texts)
    assert any("one value only" in text for text in texts)
    private.write_text("request_id,other\nt0,1\n")
    errors = [f.text for f in check_competition(load_competition(PIZZA, tmp_path)) if f.level == "error"]
    assert any("no column 'requester_received_pizza'" in text for text in errors)
    (competition.public_dir / "link").symlink_to(private)
    errors = [f.text for f in check_competition(load_competition(PIZZA, tmp_path)) if f.level == "error"]
    assert any("link out of the public folder" in text for text in errors)


def test_the_suite_tells_what_is_there_and_how_to_get_the_rest(tmp_path: Path) -> None:
    prepare_pizza(tmp_path)
    boards = tmp_path / "boards" / SPOOKY
    boards.mkdir(parents=True)
    (boards / "leaderboard.csv").write_text("version https://git-lfs.github.com/spec/v1\n")
    entries = {e["competition_id"]: e for e in check_paper12(tmp_path, tmp_path / "boards", tmp_path / "clean")}
    assert list(entries) == list(PAPER12)
    assert entries[PIZZA]["status"] == "present"
    assert entries[PIZZA]["sample_score"] == 0.5
    assert entries[PIZZA]["rows"] == 4
    assert entries[SPOOKY]["status"] == "missing"
    assert entries[SPOOKY]["board"] == "Git LFS pointer"
    assert "mlebench prepare -c spooky" in str(entries[SPOOKY]["command"])
    (tmp_path / PIZZA / "prepared" / "public" / "sampleSubmission.csv").write_text("request_id,x\n")
    entries = {e["competition_id"]: e for e in check_paper12(tmp_path, None, tmp_path / "clean")}
    assert entries[PIZZA]["status"] == "differs"


def test_the_table_has_the_papers_twelve() -> None:
    assert len(PAPER12) == 12
    losses = {spec.id for spec in PAPER12.values() if spec.is_lower_better}
    assert losses == {
        "leaf-classification",
        "nomad2018-predict-transparent-conductors",
        "spooky-author-identification",
        "lmsys-chatbot-arena",
    }
    assert len(PAPER12["leaf-classification"].rules.target_columns) == 99
    assert all(spec.sample_submission.startswith("prepared/public/") for spec in PAPER12.values())


def test_a_runs_configuration_opens_its_competition(tmp_path: Path) -> None:
    built_in = open_competition(CompetitionConfig(id="micro-regression", data_dir=str(tmp_path)))
    assert built_in.public_dir.is_dir()
    public = prepare_pizza(tmp_path)
    assert open_competition(CompetitionConfig(id=PIZZA, data_dir=str(tmp_path), keep_leaks=True)).public_dir == public
    assert open_competition(CompetitionConfig(id=PIZZA, data_dir=str(tmp_path))).public_dir != public
