"""Removing what a program left: all of it, nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from mlrl_core.sandbox.helper.trees import remove_tree


def test_deep_tree(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(2500):  # beyond recursion and PATH_MAX
            os.mkdir("d")
            os.chdir("d")
        for _ in range(2500):
            os.chdir("..")
            os.chmod("d", 0)
    finally:
        os.fchdir(before)
        os.close(before)
    assert remove_tree(str(top))
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o750)
    (other / "kept").write_text("kept")
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "link").symlink_to(other)
    (top / "a" / "up").symlink_to("..")
    os.link(other / "kept", top / "a" / "hard")
    os.mkfifo(top / "fifo")
    assert remove_tree(str(top))
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert (other / "kept").read_text() == "kept"
    assert other.stat().st_mode & 0o777 == 0o750


def test_something_else_in_its_place(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o750)
    for make in (lambda path: path.symlink_to(other), lambda path: path.touch(), os.mkfifo, lambda path: None):
        make(tmp_path / "top")
        assert remove_tree(str(tmp_path / "top"))
        assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert other.stat().st_mode & 0o777 == 0o750
