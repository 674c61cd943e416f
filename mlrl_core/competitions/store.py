"""Where competitions lie on disk: the data directory, preparing, finding, listing."""

from __future__ import annotations

import difflib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.competitions.builtin import BUILTIN
from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.toml_file import FILE_NAME, load_folder, read_file
from mlrl_core.errors import MlrlError
from mlrl_core.locking import locked

if TYPE_CHECKING:
    from mlrl_core.config.environment import CompetitionConfig

LOCK_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of ``list_competitions``: what it is and whether its files are there."""

    id: str
    name: str
    metric: str
    is_lower_better: bool
    source: str
    prepared: bool


def default_data_dir() -> Path:
    """Where prepared competitions lie: ``$MLRL_DATA``, else the user's cache folder.

    Programs run as an unprivileged user that must reach the public files, so a root user whose home is closed to
    others gets ``/var/cache/mlrl/data`` instead.
    """
    if named := os.environ.get("MLRL_DATA"):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if os.geteuid() == 0 and not _others_may_enter(cache):
        return Path("/var/cache/mlrl/data")
    return cache / "mlrl" / "data"


def prepare_competition(competition_id: str, data_dir: Path | None = None) -> Competition:
    """Write a built-in competition to ``<data_dir>/<id>`` (MLE-bench's layout) and load it.

    Idempotent: a folder made from the same spec is returned as it is. Atomic: files are built in a temporary folder
    and renamed into place under a lock, so two processes may do it at once. Raises MlrlError for an id that is not
    built in, a folder that holds something else, or a data directory that can't be written.
    """
    data_dir = data_dir or default_data_dir()
    spec = BUILTIN.get(competition_id)
    if spec is None:
        raise MlrlError(_not_builtin(competition_id))
    final = data_dir / spec.id
    digest = spec.digest()
    if _holds(final, digest):
        return load_folder(final)
    from mlrl_core.competitions.builtin.write import write_builtin

    try:
        _make_open_folder(data_dir)
        with locked(data_dir / ".prepare.lock", LOCK_DEADLINE_S, f"preparing competitions in {data_dir}"):
            if _holds(final, digest):
                return load_folder(final)
            with tempfile.TemporaryDirectory(prefix=f".{spec.id}.", dir=data_dir) as scratch:
                fresh = Path(scratch, "new")
                fresh.mkdir()
                write_builtin(spec, fresh)
                if final.exists():
                    final.rename(Path(scratch, "old"))  # made from an older spec; goes with the scratch folder
                fresh.rename(final)
    except OSError as error:
        raise MlrlError(
            f"can't write {final} ({error.strerror or error}): choose another data directory with --data-dir"
        ) from None
    return load_folder(final)


def load_competition(
    competition_id: str,
    data_dir: Path | None = None,
    boards_dir: Path | None = None,
    mlebench_python: Path | None = None,
    keep_leaks: bool = False,
) -> Competition:
    """The competition ``<data_dir>/<id>``: built-in, prepared by MLE-bench, or a folder with a ``competition.toml``.
    ``competition_id`` may also be the path of such a folder.

    ``boards_dir`` holds leaderboards (``<id>/leaderboard.csv``) or is an MLE-bench checkout. ``mlebench_python``
    (or ``$MLRL_MLEBENCH_PYTHON``) is an interpreter with MLE-bench, which grades its competitions outside the paper's
    twelve. ``keep_leaks`` leaves fields in that give the label away. Raises MlrlError when the competition is unknown
    (with the nearest known id) or not prepared (with the command that prepares it).
    """
    from mlrl_core.competitions.mlebench.external import load_external
    from mlrl_core.competitions.mlebench.load import load_prepared
    from mlrl_core.competitions.mlebench.specs import PAPER12

    data_dir = data_dir or default_data_dir()
    if "/" in competition_id or competition_id in (".", ".."):
        if not Path(competition_id, FILE_NAME).is_file():
            raise MlrlError(f"{competition_id} is not a competition: it has no {FILE_NAME}")
        return load_folder(Path(competition_id))
    folder = data_dir / competition_id
    if (folder / FILE_NAME).is_file():
        return load_folder(folder)
    if competition_id in BUILTIN:
        raise MlrlError(
            f"competition '{competition_id}' is not prepared in {data_dir}: "
            f"run 'mlrl competitions prepare {competition_id}'"
        )
    if competition_id in PAPER12:
        cleaned = default_data_dir().parent / "cleaned"
        return load_prepared(competition_id, folder, boards_dir, cleaned, keep_leaks)
    python = mlebench_python or (Path(named) if (named := os.environ.get("MLRL_MLEBENCH_PYTHON")) else None)
    if python is not None and (found := load_external(competition_id, data_dir, python)) is not None:
        return found
    if (folder / "prepared" / "public").is_dir():
        raise MlrlError(
            f"'{competition_id}' is graded by MLE-bench itself: set MLRL_MLEBENCH_PYTHON to the python that has it"
        )
    raise MlrlError(_unknown(competition_id, data_dir))


def open_competition(config: CompetitionConfig) -> Competition:
    """The competition of a run's configuration; a built-in one is prepared when it is not there yet."""
    data_dir = Path(config.data_dir) if config.data_dir else None
    if config.id in BUILTIN:
        return prepare_competition(config.id, data_dir)
    boards_dir = Path(config.boards_dir) if config.boards_dir else None
    python = Path(config.mlebench_python) if config.mlebench_python else None
    return load_competition(config.id, data_dir, boards_dir, python, config.keep_leaks)


def open_competitions(config: CompetitionConfig) -> list[Competition]:
    """All competitions of a run's configuration, in the order of ``config.ids``."""
    return [open_competition(config.model_copy(update={"id": name})) for name in config.ids]


def list_competitions(data_dir: Path | None = None) -> list[Listed]:
    """Every competition that is built in, is one of the paper's twelve or lies in ``data_dir``, by id."""
    from mlrl_core.competitions.mlebench.specs import PAPER12

    data_dir = data_dir or default_data_dir()
    listed = {
        spec.id: Listed(spec.id, spec.name, spec.metric, spec.is_lower_better, "builtin", False)
        for spec in BUILTIN.values()
    }
    for paper in PAPER12.values():
        prepared = (data_dir / paper.id / "prepared" / "public").is_dir()
        listed[paper.id] = Listed(paper.id, paper.id, paper.metric, paper.is_lower_better, "mlebench", prepared)
    for path in sorted(data_dir.glob(f"*/{FILE_NAME}")) if data_dir.is_dir() else []:
        file = read_file(path)
        listed[file.id] = Listed(file.id, file.name or file.id, file.metric, file.is_lower_better, file.source, True)
    return [listed[key] for key in sorted(listed)]


def _holds(folder: Path, digest: str) -> bool:
    """True when ``folder`` was made from this very spec and is whole; MlrlError when it holds something not ours."""
    if not folder.exists():
        return False
    file = read_file(folder / FILE_NAME) if (folder / FILE_NAME).is_file() else None
    if file is None or file.source != "builtin":
        raise MlrlError(f"{folder} holds something else: move it away or choose another data directory with --data-dir")
    paths = (file.answers, file.sample_submission, *(f"{file.public_dir}/{name}" for name in ("train.csv", "test.csv")))
    return file.spec_digest == digest and all((folder / path).is_file() for path in paths)


def _make_open_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents so that other users can pass through, whatever the umask."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def _others_may_enter(path: Path) -> bool:
    existing = next(p for p in (path, *path.parents) if p.exists())
    return all(p.stat().st_mode & 0o001 for p in (existing, *existing.parents))


def _nearest(competition_id: str, known: list[str]) -> str:
    near = difflib.get_close_matches(competition_id, known, n=1, cutoff=0.5)
    return f", did you mean '{near[0]}'?" if near else ""


def _not_builtin(competition_id: str) -> str:
    from mlrl_core.competitions.mlebench.specs import PAPER12

    if competition_id in PAPER12:
        return f"'{competition_id}' is MLE-bench's: 'mlebench prepare -c {competition_id} --data-dir DIR' gets its data"
    known = sorted(BUILTIN)
    return f"no built-in competition '{competition_id}'{_nearest(competition_id, known)} (built in: {', '.join(known)})"


def _unknown(competition_id: str, data_dir: Path) -> str:
    known = [entry.id for entry in list_competitions(data_dir)]
    return f"unknown competition '{competition_id}'{_nearest(competition_id, known)} (see 'mlrl competitions list')"
