"""The collector reads one harmless file from a hostile folder, or says why not."""

from __future__ import annotations

import gzip
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlrl_core.sandbox.collector import Submission, collect

CAP = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    out = tmp_path / "out"
    out.mkdir()
    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    yield out, descriptor
    os.close(descriptor)


def take(folder: tuple[Path, int], cap: int = CAP) -> Submission:
    return collect(folder[1], folder[0].parent / "kept" / "submission.csv", cap)


def test_good_file(folder: tuple[Path, int]) -> None:
    (folder[0] / "submission.csv").write_text("id,y\n1,0\n")
    taken = take(folder)
    assert (taken.state, taken.reason, taken.bytes) == ("ok", None, 9)
    assert Path(str(taken.path)).read_text() == "id,y\n1,0\n"


def test_empty_file_passes(folder: tuple[Path, int]) -> None:
    (folder[0] / "submission.csv").touch()
    assert (take(folder).state, take(folder).bytes) == ("ok", 0)


def test_missing(folder: tuple[Path, int]) -> None:
    assert take(folder).state == "missing"


def test_at_the_cap_and_one_over(folder: tuple[Path, int]) -> None:
    (folder[0] / "submission.csv").write_bytes(b"x" * CAP)
    assert take(folder).state == "ok"
    (folder[0] / "submission.csv").write_bytes(b"x" * (CAP + 1))
    assert (take(folder).state, take(folder).reason) == ("refused", "size")


def _symlink(path: Path) -> None:
    (path.parent / "good.csv").write_text("id\n1\n")
    path.symlink_to("good.csv")


def _hard_link(path: Path) -> None:
    (path.parent / "a").write_text("id\n1\n")
    path.hardlink_to(path.parent / "a")


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_symlink, "symlink"),
        (_hard_link, "links"),
        (_socket, "not_regular"),
        (_sparse, "size"),
        (os.mkfifo, "not_regular"),
        (os.mkdir, "not_regular"),
        (lambda path: path.write_bytes(gzip.compress(b"id\n")), "binary"),
        (lambda path: path.write_bytes(pickle.dumps({"id": 1})), "binary"),
        (lambda path: path.write_bytes(b"PK\x03\x04rest"), "binary"),
        (lambda path: path.write_bytes(b"id,y\n1,\x00\n"), "binary"),
    ],
)
def test_refused(folder: tuple[Path, int], make: Callable[[Path], object], reason: str) -> None:
    make(folder[0] / "submission.csv")
    taken = take(folder)
    assert (taken.state, taken.reason, taken.path) == ("refused", reason, None)
    assert not (folder[0].parent / "kept").exists()


def test_refusal_keeps_what_was_collected_before_apart(folder: tuple[Path, int]) -> None:
    """A later refusal must not leave the impression of an older file: the destination is the caller's to choose."""
    (folder[0] / "submission.csv").write_text("id\n1\n")
    first = take(folder)
    (folder[0] / "submission.csv").unlink()
    assert take(folder).path is None
    assert first.path is not None
