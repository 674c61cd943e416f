"""``mlrl competitions`` and ``mlrl grade``: thin commands over the package."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.store import default_data_dir, list_competitions, load_competition, prepare_competition
from mlrl_core.errors import MlrlError

app = typer.Typer(help="Competitions: list, prepare, show, check.", no_args_is_help=True)

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of prepared competitions.")]
BoardsDir = Annotated[Path | None, typer.Option("--boards-dir", help="Folder of leaderboards or MLE-bench checkout.")]
CompetitionId = Annotated[
    str, typer.Argument(metavar="COMPETITION", help="Id, or the path of a folder with competition.toml.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: one JSON document.")]


@app.command("list")
def list_command(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List known competitions and whether their files are there."""
    listed = list_competitions(data_dir)
    if as_json:
        print(json.dumps([dataclasses.asdict(entry) for entry in listed], indent=2))
        return
    rows = [
        (entry.id, entry.metric, "lower" if entry.is_lower_better else "higher", entry.source, _yes(entry.prepared))
        for entry in listed
    ]
    _table(("competition", "metric", "better", "source", "prepared"), rows)
    print(f"\ndata: {data_dir or default_data_dir()}")
    print("next: mlrl competitions prepare <id>, then mlrl train --competition <id>")


@app.command()
def prepare(
    ids: Annotated[list[str] | None, typer.Argument(help="Built-in competitions; all when none is named.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write built-in competitions to disk; does nothing where they are there already."""
    from mlrl_core.competitions.builtin import BUILTIN
    from mlrl_core.competitions.builtin.tables import MissingPackage

    prepared: list[Competition] = []
    for competition_id in ids or sorted(BUILTIN):
        try:
            prepared.append(prepare_competition(competition_id, data_dir))
        except MissingPackage as error:
            if ids:
                raise
            typer.echo(f"left out {competition_id}: {error}", err=True)
    if as_json:
        print(json.dumps([{"id": c.id, "public_dir": str(c.public_dir)} for c in prepared], indent=2))
        return
    for competition in prepared:
        print(f"{competition.id}: {competition.public_dir}")
    print(f"next: mlrl train --competition {prepared[0].id}")


@app.command()
def show(
    competition_id: CompetitionId,
    data_dir: DataDir = None,
    boards_dir: BoardsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a competition: metric, bounds, baselines, files, and the data preview that the policy gets."""
    from mlrl_core.competitions.preview import data_preview

    competition = load_competition(competition_id, data_dir, boards_dir)
    preview = data_preview(competition.public_dir)
    lines = competition.board.lines() if competition.board else None
    facts: dict[str, Any] = {
        "id": competition.id,
        "name": competition.name,
        "metric": competition.metric,
        "is_lower_better": competition.is_lower_better,
        "id_column": competition.id_column,
        "target_columns": list(competition.target_columns),
        "constant_score": competition.constant_score,
        "strong_score": competition.strong_score,
        "baselines": {name: dataclasses.asdict(entry) for name, entry in competition.baselines.items()},
        "medal_lines": dataclasses.asdict(lines) if lines else None,
        "execution": dataclasses.asdict(competition.execution),
        "public_dir": str(competition.public_dir),
        "source": competition.source,
        "warnings": list(competition.warnings),
    }
    if as_json:
        print(json.dumps(facts | {"preview": preview}, indent=2))
        return
    for name, value in facts.items():
        if name == "baselines" and value:
            print("baselines:")
            _table(("", "score", "seconds"), [(n, b["score"], b["fit_s"]) for n, b in value.items()])
        elif value not in (None, [], {}):
            print(f"{name}: {value}")
    print(f"\n{preview}\nnext: mlrl competitions check {competition_id}")


@app.command()
def check(
    competition_id: Annotated[str | None, typer.Argument(metavar="[COMPETITION]", help="Id or folder.")] = None,
    suite: Annotated[str | None, typer.Option(help="paper12: the paper's twelve competitions.")] = None,
    data_dir: DataDir = None,
    boards_dir: BoardsDir = None,
    as_json: AsJson = False,
) -> None:
    """Check that a competition can be graded and exposes nothing; exit 1 when it can't."""
    from mlrl_core.competitions import checks

    if suite is not None:
        if suite != "paper12":
            raise MlrlError(f"unknown suite '{suite}' (paper12)")
        data = data_dir or default_data_dir()
        entries = checks.check_paper12(data, boards_dir, default_data_dir().parent / "cleaned")
        if as_json:
            print(json.dumps(entries, indent=2))
        else:
            _print_suite(entries)
        raise typer.Exit(0 if all(entry["status"] == "present" for entry in entries) else 1)
    if competition_id is None:
        raise MlrlError("name a competition, or --suite paper12")
    findings = checks.check_competition(load_competition(competition_id, data_dir, boards_dir))
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.level:8}{finding.text}")
    failed = any(finding.level == "error" for finding in findings)
    if not as_json and not failed:
        print(f"next: mlrl train --competition {competition_id}")
    raise typer.Exit(1 if failed else 0)


def grade(
    competition_id: CompetitionId,
    submission: Annotated[Path, typer.Argument(help="The submission, a .csv file.")],
    answers: Annotated[Path | None, typer.Option(help="Answers, instead of the competition's own.")] = None,
    leaderboard: Annotated[Path | None, typer.Option(help="Board, instead of the competition's own.")] = None,
    data_dir: DataDir = None,
    boards_dir: BoardsDir = None,
    as_json: AsJson = False,
) -> None:
    """Grade a submission as MLE-bench does; exit 0 whatever the score."""
    from mlrl_core.competitions.report import grade_report

    report = grade_report(_to_grade(competition_id, answers, leaderboard, data_dir, boards_dir), submission)
    if as_json:
        print(json.dumps(report, indent=2, allow_nan=False))
        return
    direction = "lower" if report["is_lower_better"] else "higher"
    if report["valid_submission"]:
        medals = [name for name in ("gold", "silver", "bronze") if report[f"{name}_medal"]]
        print(f"{competition_id}: {report['score']:g} ({direction} is better){', ' + medals[0] if medals else ''}")
    else:
        print(f"{competition_id}: no score, {report['reason']}")
    for warning in report["warnings"]:
        print(f"warning: {warning}")
    print("next: --json prints the whole report")


def _to_grade(
    competition_id: str, answers: Path | None, leaderboard: Path | None, data_dir: Path | None, boards_dir: Path | None
) -> Competition:
    """The competition with the files that were named in place of its own. One of the paper's twelve needs no prepared
    data when its answers are named."""
    from mlrl_core.competitions.board import read_board
    from mlrl_core.competitions.mlebench.load import from_spec
    from mlrl_core.competitions.mlebench.specs import PAPER12

    board = read_board(leaderboard) if leaderboard else None
    if answers is not None and not answers.is_file():
        raise MlrlError(f"{answers}: there is no such file of answers")
    if answers is not None and competition_id in PAPER12:
        folder = (data_dir or default_data_dir()) / competition_id
        spec = PAPER12[competition_id]
        return from_spec(spec, folder / "prepared" / "public", answers, folder / spec.sample_submission, board)
    competition = load_competition(competition_id, data_dir, boards_dir)
    return dataclasses.replace(
        competition, answers_path=answers or competition.answers_path, board=board or competition.board
    )


def _print_suite(entries: list[dict[str, object]]) -> None:
    columns = ("competition_id", "status", "rows", "sample_score", "expected_sample_score", "board", "disk_mb")
    _table(columns, [tuple(entry[column] for column in columns) for entry in entries])
    for entry in entries:
        if entry["detail"]:
            print(f"\n{entry['competition_id']}: {entry['detail']}")
    missing = [entry for entry in entries if entry["status"] != "present"]
    if missing:
        print("\nKaggle asks to accept each competition's rules once, in a browser; then:")
        for entry in missing:
            print(f"  {entry['command']}")
    else:
        print("\nnext: mlrl train --profile paper --competition <id>")


def _table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    cells = [header, *(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(header))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _yes(value: bool) -> str:
    return "yes" if value else "no"
