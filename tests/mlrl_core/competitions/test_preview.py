"""The data preview: content, budget, order, bounded reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlrl_core.competitions.preview import data_preview


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "".join(f'{i},{"red" if i % 2 else "blue"},{i / 10 if i % 4 else ""},"a, ""b""\nc"\n' for i in range(40))
    (tmp_path / "train.csv").write_text("id,color,size,note\n" + rows)
    (tmp_path / "test.json").write_text('[{"id": "x", "text": "hello", "n": 3}, {"id": "y"}]')
    (tmp_path / "description.md").write_text("# Known already")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "images").mkdir()
    for i in range(40):
        (tmp_path / "images" / f"{i:03}.png").write_bytes(b"x" * i)
    return tmp_path


def test_it_shows_tree_rows_types_ranges_and_missing_shares(folder: Path) -> None:
    text = data_preview(folder)
    assert "train.csv: 40 rows x 4 columns" in text
    assert "- id: int, 0 to 39" in text
    assert "- color: text, 2 distinct, e.g. 'blue', 'red'" in text
    assert "- size: float, 0.1 to 3.9, 25% missing" in text
    assert "test.json: records with id (str), text (str), n (int)" in text
    assert "images/\n  000.png (0 B)" in text
    assert "  ... 36 more files" in text
    assert "description.md" not in text


def test_it_is_stable_and_never_above_the_budget(folder: Path) -> None:
    assert data_preview(folder) == data_preview(folder)
    full = data_preview(folder, 10_000)
    seen = set()
    for budget in (0, 1, 5, 20, 40, 60, 80, 120, 160, 1000):
        text = data_preview(folder, budget, count_tokens=lambda text: len(text.split()))
        assert len(text.split()) <= budget
        seen.add(text)
    assert full in seen
    assert len(seen) > 4  # levels of detail, then a marked cut
    assert "[preview cut]" in data_preview(folder, 20)


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "other.csv").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("/etc")
    text = data_preview(folder)
    assert "other.csv" not in text
    assert "passwd" not in text


def test_odd_files_do_not_stop_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.csv").write_bytes(b"")
    (tmp_path / "c.json").write_text("{broken")
    (tmp_path / "d.csv").write_text("x\n1\n")
    assert "d.csv: 1 rows x 1 columns" in data_preview(tmp_path)


def test_rows_of_a_middling_table_are_counted_exactly_also_with_quoted_line_ends(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text\n" + 'x,"one\ntwo"\n' * 100_000)
    assert "t.csv: 100000 rows x 2 columns, columns from the first" in data_preview(tmp_path)
