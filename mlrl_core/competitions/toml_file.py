"""``competition.toml``: the one file that says how a folder is graded. The same for built-in and users' own folders."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlrl_core.competitions.board import read_board
from mlrl_core.competitions.competition import Baseline, Competition, ExecutionSettings, Rules
from mlrl_core.errors import MlrlError

if TYPE_CHECKING:
    from mlrl_core.competitions.toml_schema import CompetitionFile

FILE_NAME = "competition.toml"


def render(file: Mapping[str, Any]) -> str:
    """TOML text of a flat mapping whose values are scalars, lists or (last) tables of scalars."""
    lines: list[str] = []
    for key, value in file.items():
        if isinstance(value, Mapping):
            # JSON strings, numbers, booleans and arrays of them are valid TOML.
            lines += ["", f"[{key}]", *(f"{name} = {json.dumps(entry)}" for name, entry in value.items())]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def read_file(path: Path) -> CompetitionFile:
    """The validated content of a ``competition.toml``. Raises MlrlError with one line that names file and key."""
    from pydantic import ValidationError

    from mlrl_core.competitions.toml_schema import CompetitionFile

    try:
        return CompetitionFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MlrlError(f"{path}: can't be read as TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise MlrlError(f"{path}: {key + ': ' if key else ''}{first['msg'].removeprefix('Value error, ')}") from None


def load_folder(folder: Path) -> Competition:
    """The competition that ``<folder>/competition.toml`` describes; paths in it are relative to the folder.

    Raises MlrlError when a file is missing, when the answers or the grader lie inside the public folder, or when the
    public folder reaches private files by a link.
    """
    file = read_file(folder / FILE_NAME)
    root = folder.resolve()
    public = _inside(root, file.public_dir, "public_dir")
    answers = _inside(root, file.answers, "answers")
    sample = _inside(root, file.sample_submission, "sample_submission")
    grader = _inside(root, file.grader, "grader") if file.grader else None
    board = _inside(root, file.leaderboard, "leaderboard") if file.leaderboard else None
    if not public.is_dir():
        raise MlrlError(f"{folder}: public_dir '{file.public_dir}' is not a folder")
    for key, path in (("answers", answers), ("sample_submission", sample), ("grader", grader), ("leaderboard", board)):
        if path is not None and not path.is_file():
            raise MlrlError(f"{folder}: {key} '{path.relative_to(root)}' is missing")
        if key != "sample_submission" and path is not None and path.is_relative_to(public):
            raise MlrlError(f"{folder}: {key} '{path.relative_to(root)}' lies in the public folder: move it out")
    description = public / "description.md"
    return Competition(
        id=file.id,
        name=file.name or file.id,
        description=description.read_text(encoding="utf-8") if description.is_file() else "",
        metric=file.metric,
        is_lower_better=file.is_lower_better,
        public_dir=public,
        answers_path=answers,
        sample_submission_path=sample,
        rules=Rules(
            id_column=file.id_column,
            target_columns=file.target_columns,
            columns=file.rules.columns,
            value_range=file.rules.value_range,
            row_sum=file.rules.row_sum,
            pairing=file.rules.pairing,
        ),
        source=file.source,
        constant_score=file.bounds.constant_score,
        strong_score=file.bounds.strong_score,
        baselines={name: Baseline(entry.score, entry.fit_s) for name, entry in file.baselines.items()},
        execution=ExecutionSettings(**file.execution.model_dump()),
        grade_script=grader,
        board=read_board(board) if board else None,
    )


def _inside(root: Path, relative: str, key: str) -> Path:
    path = (root / relative).resolve()
    if not path.is_relative_to(root):
        raise MlrlError(f"{root}: {key} '{relative}' leads out of the competition's folder")
    return path
