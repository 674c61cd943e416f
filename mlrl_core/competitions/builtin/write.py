"""From a ``BuiltinSpec`` to files in MLE-bench's prepared layout."""

from __future__ import annotations

import csv
import hashlib
from collections import defaultdict
from pathlib import Path
from statistics import median

from mlrl_core.competitions.builtin.specs import BuiltinSpec
from mlrl_core.competitions.builtin.synthetic import blend_score, board_scores, is_usable
from mlrl_core.competitions.builtin.tables import Row
from mlrl_core.competitions.toml_file import render
from mlrl_core.errors import MlrlError


def write_builtin(spec: BuiltinSpec, folder: Path) -> None:
    """Write ``competition.toml``, ``prepared/public`` and ``prepared/private`` into the empty ``folder``.

    Other users may read the public part and may not enter the private one (mode 0700).
    """
    train, test, header = split(spec)
    target = header.index(spec.target)
    targets = list(spec.rules.target_columns)
    public, private = folder / "prepared" / "public", folder / "prepared" / "private"
    for directory, mode in ((folder, 0o755), (folder / "prepared", 0o755), (public, 0o755), (private, 0o700)):
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)

    def visible(row: Row, *, with_target: bool) -> Row:
        shown = zip(header, row, strict=True)
        return [cell for name, cell in shown if name != spec.hidden and (with_target or name != spec.target)]

    test_ids = [str(len(train) + i) for i in range(len(test))]
    rows = [[str(i), *visible(row, with_target=True)] for i, row in enumerate(train)]
    _write_csv(public / "train.csv", ["id", *visible(header, with_target=True)], rows)
    rows = [[i, *visible(row, with_target=False)] for i, row in zip(test_ids, test, strict=True)]
    _write_csv(public / "test.csv", ["id", *visible(header, with_target=False)], rows)
    samples = _sample_values(spec, header, train, test)
    rows = [[i, *([sample] * len(targets))] for i, sample in zip(test_ids, samples, strict=True)]
    _write_csv(public / "sample_submission.csv", ["id", *targets], rows)
    one_hot = targets != [spec.target]
    labels = [_one_hot(row[target], targets) if one_hot else [row[target]] for row in test]
    rows = [[i, *label] for i, label in zip(test_ids, labels, strict=True)]
    _write_csv(private / "answers.csv", ["id", *targets], rows, mode=0o600)
    file = _competition_file(spec)
    if spec.hidden:
        _write_csv(private / "leaderboard.csv", ["score"], _synthetic_board(spec, header, train, test), mode=0o600)
    example = "\n".join((public / "sample_submission.csv").read_text().splitlines()[:3])
    text = spec.description()
    for name, value in {"n_train": len(train), "n_test": len(test), "example": example}.items():
        text = text.replace("{" + name + "}", str(value))
    _write(public / "description.md", text)
    _write(folder / "competition.toml", render(file))


def split(spec: BuiltinSpec) -> tuple[list[Row], list[Row], list[str]]:
    """Training rows, test rows and header of the table, by the spec's seeded split."""
    table = spec.source.table()
    ordered = _seeded_order(table.rows, str(spec.seed))
    if spec.stratify:
        ordered = _interleave_classes(ordered, table.header.index(spec.target))
    if len(ordered) < spec.n_train + spec.n_test:
        raise MlrlError(
            f"the table of '{spec.id}' has {len(ordered)} rows, {spec.n_train + spec.n_test} are needed: "
            "install another version of the package it comes from"
        )
    # The test set comes first so that it stays the same when more training rows are taken; both parts are put in
    # another seeded order, or a stratified draw would give the labels away by position.
    test, train = ordered[: spec.n_test], ordered[spec.n_test : spec.n_test + spec.n_train]
    return _seeded_order(train, f"{spec.seed} train"), _seeded_order(test, f"{spec.seed} test"), table.header


def _seeded_order(rows: list[Row], seed: str) -> list[Row]:
    def key(row: Row) -> bytes:
        return hashlib.blake2b("\x1f".join([seed, *row]).encode(), digest_size=16).digest()

    return sorted(rows, key=key)


def _interleave_classes(rows: list[Row], target: int) -> list[Row]:
    """The same rows, ordered so that every prefix has each class in its share of the whole (to within one row)."""
    classes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        classes[row[target]].append(row)
    placed = [
        ((i + 0.5) / len(members), label, row) for label, members in classes.items() for i, row in enumerate(members)
    ]
    return [row for _, _, row in sorted(placed, key=lambda item: item[:2])]


def _sample_values(spec: BuiltinSpec, header: Row, train: list[Row], test: list[Row]) -> list[str]:
    if spec.sample == "train_median":
        target = header.index(spec.target)
        return [format(median(float(row[target]) for row in train), "g")] * len(test)
    if spec.sample.startswith("length:"):
        column = header.index(spec.sample.removeprefix("length:"))
        return [str(len(row[column])) for row in test]
    return [spec.sample] * len(test)


def _synthetic_board(spec: BuiltinSpec, header: Row, train: list[Row], test: list[Row]) -> list[Row]:
    target, signal = header.index(spec.target), header.index(str(spec.hidden))
    classification = spec.metric == "log_loss"
    truth = [float(row[target]) for row in test]
    constant = sum(float(row[target]) for row in train) / len(train)
    scores = board_scores(truth, [float(row[signal]) for row in test], constant, classification)
    sample = [float(value) for value in _sample_values(spec, header, train, test)]
    if not is_usable(scores, blend_score(truth, sample, classification)):
        raise ValueError(f"{spec.id}: this seed gives thresholds that are not monotone or not above the sample")
    return [[repr(score)] for score in scores]


def _one_hot(label: str, classes: list[str]) -> list[str]:
    return ["1" if label == name.rsplit("_", 1)[-1] else "0" for name in classes]


def _competition_file(spec: BuiltinSpec) -> dict[str, object]:
    file: dict[str, object] = {
        "id": spec.id,
        "name": spec.name,
        "metric": spec.metric,
        "is_lower_better": spec.is_lower_better,
        "id_column": spec.rules.id_column,
        "target_columns": list(spec.rules.target_columns),
        "public_dir": "prepared/public",
        "answers": "prepared/private/answers.csv",
        "sample_submission": "prepared/public/sample_submission.csv",
        "source": "builtin",
        "spec_digest": spec.digest(),
    }
    if spec.hidden:
        file["leaderboard"] = "prepared/private/leaderboard.csv"
    rules: dict[str, object] = {"columns": spec.rules.columns, "pairing": spec.rules.pairing}
    if spec.rules.value_range:
        rules["value_range"] = list(spec.rules.value_range)
    if spec.rules.row_sum:
        rules["row_sum"] = spec.rules.row_sum
    file["rules"] = rules
    baselines = spec.baselines()
    if "constant" in baselines:
        file["bounds"] = {"constant_score": baselines["constant"].score, "strong_score": spec.strong_score}
    for name, baseline in baselines.items():
        entry = {"score": baseline.score, "fit_s": baseline.fit_s}
        file[f"baselines.{name}"] = {key: value for key, value in entry.items() if value is not None}
    return file


def _write_csv(path: Path, header: list[str], rows: list[Row], mode: int = 0o644) -> None:
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([header, *rows])
    path.chmod(mode)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
