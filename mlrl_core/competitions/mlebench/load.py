"""From MLE-bench's prepared data (or loose files) to a ``Competition``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlrl_core.competitions.board import Board, read_board
from mlrl_core.competitions.competition import Competition, ExecutionSettings
from mlrl_core.competitions.mlebench.leaks import without_fields
from mlrl_core.competitions.mlebench.specs import PAPER12, PaperSpec
from mlrl_core.errors import MlrlError


def from_spec(
    spec: PaperSpec, public_dir: Path, answers: Path, sample_submission: Path, board: Board | None
) -> Competition:
    """The competition of ``spec`` with its files in the given places."""
    description = public_dir / "description.md"
    return Competition(
        id=spec.id,
        name=spec.id,
        description=description.read_text(encoding="utf-8") if description.is_file() else "",
        metric=spec.metric,
        is_lower_better=spec.is_lower_better,
        public_dir=public_dir,
        answers_path=answers,
        sample_submission_path=sample_submission,
        rules=spec.rules,
        source="mlebench",
        constant_score=spec.sample_score if spec.sample_score is not None else 0.0,
        strong_score=spec.strong_score,
        execution=ExecutionSettings(time_limit_s=spec.time_limit_s),
        board=board,
    )


def load_prepared(
    competition_id: str, folder: Path, boards_dir: Path | None, cleaned_dir: Path, keep_leaks: bool = False
) -> Competition:
    """One of the paper's twelve from ``<folder>/prepared``.

    Fields that give the label away are dropped: the public folder is then a cleaned copy under ``cleaned_dir``.
    ``keep_leaks`` leaves them in and flags every score. Raises MlrlError that names the missing part and the command
    that makes it.
    """
    spec = PAPER12[competition_id]
    public = (folder / "prepared" / "public").resolve()
    answers, sample = folder / spec.answers, (folder / spec.sample_submission).resolve()
    prepare = f"mlebench prepare -c {competition_id} --data-dir {folder.parent}"
    if not public.is_dir():
        raise MlrlError(f"{folder} has no prepared/public: run '{prepare}'")
    if not sample.is_relative_to(public):
        raise MlrlError(f"{folder / spec.sample_submission} leads out of prepared/public: it must be a file there")
    for path in (answers, sample):
        if not path.is_file():
            raise MlrlError(f"{path} is missing: run '{prepare}' again")
    board = find_board(competition_id, folder, boards_dir)
    competition = from_spec(spec, public, answers.resolve(), sample, board)
    if not spec.drop_fields:
        return competition
    names = ", ".join(spec.drop_fields)
    if keep_leaks:
        return replace(competition, warnings=(f"leaking_fields_kept: {names}",))
    cleaned = without_fields(public, spec.drop_fields, cleaned_dir)
    return replace(competition, public_dir=cleaned, sample_submission_path=cleaned / sample.relative_to(public))


def find_board(competition_id: str, folder: Path, boards_dir: Path | None) -> Board | None:
    """The board beside the data, or in ``boards_dir`` (``<id>/leaderboard.csv``, ``<id>.csv`` or an MLE-bench
    checkout); None when there is none. Raises BoardError for one that can't be used."""
    places = [folder / "leaderboard.csv"]
    if boards_dir is not None:
        checkout = boards_dir / "mlebench" / "competitions"
        places += [root / competition_id / "leaderboard.csv" for root in (boards_dir, checkout)]
        places.append(boards_dir / f"{competition_id}.csv")
    return next((read_board(path) for path in places if path.is_file()), None)
