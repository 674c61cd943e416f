"""What counts as a submission file, and the reason when it does not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mlrl_core.competitions.reasons import InvalidSubmission
from mlrl_core.competitions.submission import MIN_CAP_BYTES, read_submission, size_cap


def reason(path: Path, cap: int = 1000) -> str:
    with pytest.raises(InvalidSubmission) as caught:
        read_submission(path, cap)
    return caught.value.reason


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "SUBMISSION.CSV"
    path.write_bytes(b"a\n1\n")
    assert read_submission(path, 4) == b"a\n1\n"
    assert reason(path, 3) == "too_large"


def test_everything_else_has_a_reason(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    link, hard, fifo, folder = (tmp_path / name for name in ("link.csv", "hard.csv", "fifo.csv", "folder.csv"))
    link.symlink_to(secret)
    os.link(secret, hard)
    os.mkfifo(fifo)
    folder.mkdir()
    text = tmp_path / "submission.txt"
    text.write_text("a\n1\n")
    listening = tmp_path / "socket.csv"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(listening))
        assert reason(listening) == "not_regular"
    assert reason(tmp_path / "none.csv") == "missing"
    assert reason(tmp_path / "none.csv" / "below.csv") == "missing"
    assert reason(link) == "symlink"
    assert reason(hard) == "hard_link"
    assert reason(fifo) == "not_regular"
    assert reason(folder) == "directory"
    assert reason(text) == "wrong_suffix"


def test_the_cap_grows_with_the_sample(tmp_path: Path) -> None:
    sample = tmp_path / "sample.csv"
    with sample.open("wb") as file:
        file.truncate(5 * 1024**2)
    assert size_cap(sample) == 40 * 1024**2
    assert size_cap(tmp_path / "none") == MIN_CAP_BYTES
