"""Built-in competitions: what prepare writes, and the baselines it is judged by."""

from __future__ import annotations

import csv
import os
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from mlrl_core.competitions import (
    default_data_dir,
    grade,
    label_files,
    list_competitions,
    load_competition,
    map_score,
    prepare_competition,
)
from mlrl_core.competitions.builtin import BUILTIN
from mlrl_core.competitions.builtin.measure import measure
from mlrl_core.competitions.builtin.synthetic import SyntheticSource
from mlrl_core.competitions.builtin.tables import MissingPackage
from mlrl_core.competitions.checks import check_competition
from mlrl_core.competitions.metrics import METRICS
from mlrl_core.errors import MlrlError

FAST = {"constant", "ridge", "logistic", "tree", "hist_boosting"}


def available(competition_id: str) -> str:
    try:
        BUILTIN[competition_id].digest()
    except MissingPackage as error:
        pytest.skip(str(error))
    return competition_id


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(params=sorted(BUILTIN))
def competition_id(request: pytest.FixtureRequest) -> str:
    return available(request.param)


def test_layout_and_modes(competition_id: str, tmp_path: Path) -> None:
    old = os.umask(0o077)  # the modes must not depend on the user's mask
    try:
        competition = prepare_competition(competition_id, tmp_path / "new" / "data")
    finally:
        os.umask(old)
    names = {path.name for path in competition.public_dir.iterdir()}
    assert names == {"train.csv", "test.csv", "sample_submission.csv", "description.md"}
    for path in (competition.public_dir, *competition.public_dir.parents[:4], *competition.public_dir.iterdir()):
        if path.is_relative_to(tmp_path / "new"):
            wanted = 0o005 if path.is_dir() else 0o004
            assert path.stat().st_mode & wanted == wanted, path
    private = competition.answers_path.parent
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert [f for f in check_competition(competition) if f.level == "error"] == []
    assert "{" not in competition.description.replace("{i", "").split("# Dataset")[1]
    assert str(BUILTIN[competition_id].n_train) in competition.description


def test_train_and_test_are_disjoint_and_the_labels_are_hidden(competition_id: str, tmp_path: Path) -> None:
    spec = BUILTIN[competition_id]
    competition = prepare_competition(competition_id, tmp_path)
    train, test = (rows_of(competition.public_dir / name) for name in ("train.csv", "test.csv"))
    answers = rows_of(competition.answers_path)
    assert (len(train), len(test)) == (spec.n_train, spec.n_test)
    assert set(train[0]) - set(test[0]) == {spec.target}
    assert spec.hidden not in train[0]
    assert [row["id"] for row in test] == [row["id"] for row in answers]

    def features(row: dict[str, str]) -> tuple[str, ...]:
        return tuple(value for key, value in row.items() if key not in ("id", spec.target))

    if len(spec.rules.target_columns) == 1:
        known = {(*features(row), row[spec.target]) for row in train}
        twins = {(*features(row), a[spec.target]) for row, a in zip(test, answers, strict=True)} & known
        assert twins == set()


def test_the_order_of_rows_says_nothing_of_the_label(tmp_path: Path) -> None:
    competition = prepare_competition("penguins", tmp_path)
    labels = [row["species"] for row in rows_of(competition.answers_path)]
    changes = sum(a != b for a, b in pairwise(labels))
    shares = [labels.count(name) / len(labels) for name in set(labels)]
    expected = (len(labels) - 1) * (1 - sum(share**2 for share in shares))
    assert abs(changes - expected) < 3 * len(labels) ** 0.5
    assert sorted(round(share, 2) for share in shares) == [0.2, 0.36, 0.44]  # stratified: the shares of the table


def test_prepare_is_idempotent_and_repairs_an_older_spec(tmp_path: Path) -> None:
    first = prepare_competition("micro-regression", tmp_path)
    stamp = first.answers_path.stat().st_mtime_ns
    assert prepare_competition("micro-regression", tmp_path) == first
    assert first.answers_path.stat().st_mtime_ns == stamp
    toml = tmp_path / "micro-regression" / "competition.toml"
    toml.write_text(toml.read_text().replace("spec_digest = ", 'spec_digest = "old" #'))
    assert prepare_competition("micro-regression", tmp_path).answers_path.stat().st_mtime_ns != stamp
    first.answers_path.unlink()
    assert prepare_competition("micro-regression", tmp_path).answers_path.is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"micro-regression", ".prepare.lock"}


def test_prepare_by_several_processes_at_once(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import sys; from mlrl_core.competitions import prepare_competition, grade;"
        "c = prepare_competition('micro-classification', Path(sys.argv[1]));"
        "print(grade(c, c.sample_submission_path).raw)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(set(outputs)) == 1


def test_prepare_never_overwrites_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "diamonds").mkdir()
    (tmp_path / "diamonds" / "mine.txt").write_text("keep")
    with pytest.raises(MlrlError, match="holds something else"):
        prepare_competition("diamonds", tmp_path)
    assert (tmp_path / "diamonds" / "mine.txt").read_text() == "keep"


def test_a_data_directory_that_can_not_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(MlrlError, match="--data-dir"):
        prepare_competition("micro-regression", blocked / "data")


def test_unknown_and_unprepared_competitions_are_explained(tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="did you mean 'diamonds'"):
        load_competition("diamond", tmp_path)
    with pytest.raises(MlrlError, match="mlrl competitions prepare diamonds"):
        load_competition("diamonds", tmp_path)
    with pytest.raises(MlrlError, match="mlebench prepare -c leaf-classification"):
        prepare_competition("leaf-classification", tmp_path)
    with pytest.raises(MlrlError, match="did you mean 'penguins'"):
        prepare_competition("penguin", tmp_path)
    with pytest.raises(MlrlError, match=r"has no competition\.toml"):
        load_competition(str(tmp_path))


def test_listing_tells_what_is_prepared(tmp_path: Path) -> None:
    prepare_competition("micro-regression", tmp_path)
    listed = {entry.id: entry.prepared for entry in list_competitions(tmp_path)}
    assert listed["micro-regression"]
    assert not listed["diamonds"]
    assert "spooky-author-identification" in listed


def test_default_data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLRL_DATA", str(tmp_path))
    assert default_data_dir() == tmp_path
    monkeypatch.delenv("MLRL_DATA")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed))
    if os.geteuid() == 0:
        assert default_data_dir() == Path("/var/cache/mlrl/data")
    else:
        assert default_data_dir() == closed / "mlrl" / "data"


def test_stored_baselines_are_what_the_models_score(competition_id: str) -> None:
    spec = BUILTIN[competition_id]
    stored = spec.baselines()
    for name, entry in measure(spec, sorted(FAST & stored.keys()), repeats=1).items():
        assert entry["score"] == pytest.approx(stored[name].score, rel=0.03, abs=1e-6), name
    best = (min if spec.is_lower_better else max)(baseline.score for baseline in stored.values())
    assert spec.strong_score == pytest.approx(best, rel=0.01)


def test_slower_is_better_on_diamonds_and_pointless_on_breast_cancer() -> None:
    diamonds, cancer = (BUILTIN[name].baselines() for name in ("diamonds", "breast-cancer"))
    assert diamonds["gradient_boosting_600"].score < diamonds["ridge"].score * 0.7
    assert (diamonds["gradient_boosting_600"].fit_s or 0) > 20 * (diamonds["ridge"].fit_s or 0)
    assert cancer["logistic"].score > cancer["forest_300"].score
    assert (cancer["logistic"].fit_s or 0) < (cancer["forest_300"].fit_s or 0) / 10


def test_bounded_map_is_zero_at_the_constant_and_one_at_the_strong_baseline(
    competition_id: str, tmp_path: Path
) -> None:
    competition = prepare_competition(competition_id, tmp_path)
    assert competition.constant_score is not None
    assert competition.strong_score is not None
    assert map_score(competition, competition.constant_score, "bounded") == pytest.approx(0)
    assert map_score(competition, competition.strong_score, "bounded") == pytest.approx(1)
    assert map_score(competition, METRICS[competition.metric].perfect, "bounded") <= 1.5
    assert map_score(competition, 1e300 if competition.is_lower_better else -1.0, "bounded") < 0


def test_scores_are_ranked_among_the_baselines_where_there_is_no_board(tmp_path: Path) -> None:
    competition = prepare_competition("penguins", tmp_path)
    score = grade(competition, competition.sample_submission_path)
    assert score.percentile == pytest.approx(0.5 / 6)  # ties with the constant, below the others
    assert score.medal is None
    assert set(score.warnings) >= {"sample_copy", "constant_predictions"}


@pytest.mark.parametrize("competition_id", ["micro-regression", "micro-classification"])
def test_synthetic_thresholds_are_strictly_monotone_and_above_the_sample(competition_id: str, tmp_path: Path) -> None:
    competition = prepare_competition(competition_id, tmp_path)
    assert competition.board is not None
    lines = competition.board.lines()
    sample = grade(competition, competition.sample_submission_path).raw
    assert sample is not None
    assert lines.gold < lines.silver < lines.bronze < lines.median < sample


def test_a_synthetic_table_is_the_same_every_time() -> None:
    source = SyntheticSource(seed=7, classification=False)
    assert source.table() == source.table()
    assert source.table() != SyntheticSource(seed=8, classification=False).table()
    assert len(source.table().rows) == 200


def test_label_files_hold_the_source_tables() -> None:
    found = {str(path) for path in label_files()}
    for competition_id in ("diamonds", "penguins", "breast-cancer", "digits"):
        assert {str(path) for path in BUILTIN[competition_id].label_files()} <= found
    assert all(path.is_file() for path in label_files())
