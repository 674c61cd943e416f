"""MLE-bench's other competitions, graded by the user's own MLE-bench installation."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mlrl_core.competitions.board import read_board
from mlrl_core.competitions.competition import Competition, Rules
from mlrl_core.competitions.outside import OutsideFailed, run_json
from mlrl_core.errors import MlrlError

PROBE_DEADLINE_S = 120.0
_PROBE = """
import json, os, sys
from pathlib import Path
fd, competition_id, data_dir = int(sys.argv[1]), *sys.argv[2:4]
from mlebench.registry import registry
known = sorted(registry.list_competition_ids())
reply = {"known": known}
if competition_id in known:
    c = registry.set_data_dir(Path(data_dir)).get_competition(competition_id)
    reply |= {"name": c.name, "description": c.description, "answers": str(c.answers), "public": str(c.public_dir),
              "sample": str(c.sample_submission), "board": str(c.leaderboard)}
os.write(fd, json.dumps(reply).encode())
"""


def load_external(competition_id: str, data_dir: Path, python: Path) -> Competition | None:
    """The competition as the MLE-bench of ``python`` (an interpreter) knows it; None when it does not.

    The direction is MLE-bench's own: lower is better when the board's first score is below its last. Raises MlrlError
    when MLE-bench can't be asked, the data are not prepared, or the sample submission is not in the public folder.
    """
    with tempfile.TemporaryDirectory(prefix="mlrl-probe-") as scratch:
        argv = [str(python), "-c", _PROBE, "{fd}", competition_id, str(data_dir.resolve())]
        try:
            reply = run_json(argv, PROBE_DEADLINE_S, Path(scratch))
        except OutsideFailed as error:
            raise MlrlError(f"MLE-bench can't be asked with {python}: {error}") from None
    if "public" not in reply:
        return None
    public, answers, sample = (Path(reply[key]).resolve() for key in ("public", "answers", "sample"))
    for path in (public, answers, sample):
        if not path.exists():
            raise MlrlError(f"{path} is missing: run 'mlebench prepare -c {competition_id} --data-dir {data_dir}'")
    board = read_board(Path(reply["board"]))
    return Competition(
        id=competition_id,
        name=str(reply["name"]),
        description=str(reply["description"]),
        metric="mlebench",
        is_lower_better=board.scores[0] < board.scores[-1],
        public_dir=public,
        answers_path=answers,
        sample_submission_path=sample,
        rules=Rules(None, (), pairing="by_position"),
        source="mlebench",
        board=board,
        mlebench_python=python,
        # Five of them keep the sample under private/: it is used for grading, never shown.
        warnings=() if sample.is_relative_to(public) else ("sample_submission_is_private",),
    )
