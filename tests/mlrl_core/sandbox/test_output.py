"""Captured output and milestones: any chunking gives the same result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrl_core.records import StreamCapture
from mlrl_core.sandbox.output import START_LINE, MilestoneFilter, StartLine, StreamKeeper, capture_text
from tests.mlrl_core.sandbox.conftest import UNHURRIED

NONCE = "f3a9"
LABELS = ("imported packages", "training loss", "trained model")
# Small alphabets, so that nonces, half nonces and labels really occur.
pieces = st.lists(
    st.sampled_from(
        [
            b"f3a9 imported packages\n",
            b"f3a9 training loss: 0.5\n",
            b"f3a9 trained model\r\n",
            b"f3a",
            b"f3a9",
            b"9 ",
            b"\n",
            b"x" * 40,
            b"f3a9 unknown\n",
            b"f3a9 training loss: much\n",
            b"\xff\xc3",
            b"\r",
        ]
    ),
    max_size=30,
)
cuts = st.lists(st.integers(1, 50), max_size=60)


def chunked(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, start = [], 0
    for size in sizes:
        chunks.append(data[start : start + size])
        start += size
    return [*chunks, data[start:]]


@UNHURRIED
@given(pieces, cuts)
def test_milestones_do_not_depend_on_chunks(parts: list[bytes], sizes: list[int]) -> None:
    data = b"".join(parts)
    whole, cut = MilestoneFilter(NONCE, LABELS), MilestoneFilter(NONCE, LABELS)
    expected = whole.feed(data) + whole.finish()
    got = b"".join(cut.feed(chunk) for chunk in chunked(data, sizes)) + cut.finish()
    assert got == expected
    assert (cut.seen, cut.values, cut.out_of_order) == (whole.seen, whole.values, whole.out_of_order)


@UNHURRIED
@given(st.binary(max_size=300), cuts)
def test_keeper_does_not_depend_on_chunks(data: bytes, sizes: list[int]) -> None:
    whole, cut = StreamKeeper(40), StreamKeeper(40)
    whole.feed(data)
    for chunk in chunked(data, sizes):
        cut.feed(chunk)
    assert cut.capture() == whole.capture()
    assert cut.capture().bytes == len(data)
    assert cut.truncated == (len(data) > 80)


@UNHURRIED
@given(st.binary(max_size=40), cuts)
def test_start_line_does_not_depend_on_chunks(rest: bytes, sizes: list[int]) -> None:
    parser = StartLine()
    passed = b"".join(parser.feed(chunk) for chunk in chunked(START_LINE + START_LINE + rest, sizes))
    assert parser.seen
    assert passed == START_LINE + rest  # a second one is ordinary output


def test_something_before_the_start_line_is_no_start() -> None:
    parser = StartLine()
    assert parser.feed(b"\x01MLRL") == b""
    assert parser.feed(b"!") == b"\x01MLRL!"
    assert parser.failed
    assert not parser.seen


def test_milestones_count_once_in_order_and_leave_no_trace() -> None:
    parser = MilestoneFilter(NONCE, LABELS)
    text = b"a\nf3a9 imported packages\nf3a9 training loss: 0.9\nb\nf3a9 training loss: 4e-1\nf3a9 trained model\n"
    assert parser.feed(text) + parser.finish() == b"a\nb\n"
    assert parser.seen == list(LABELS)
    assert parser.values == {"training loss": 0.4}
    assert not parser.out_of_order


def test_milestone_after_an_open_line_counts() -> None:
    parser = MilestoneFilter(NONCE, LABELS)
    assert parser.feed(b"\r 50%|####f3a9 trained model\n") == b"\r 50%|####"
    assert parser.seen == ["trained model"]


def test_out_of_order_is_flagged() -> None:
    parser = MilestoneFilter(NONCE, LABELS)
    parser.feed(b"f3a9 trained model\nf3a9 imported packages\n")
    assert parser.out_of_order


@pytest.mark.parametrize(
    "line", [b"f3a9 unknown\n", b"f3a9imported packages\n", b"imported packages\n", b"f3a8 trained model\n"]
)
def test_what_is_no_milestone_stays(line: bytes) -> None:
    parser = MilestoneFilter(NONCE, LABELS)
    assert parser.feed(line) + parser.finish() == line
    assert parser.seen == []


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "much", "0x1p3"])
def test_a_label_without_a_finite_number_counts_without_value(text: str) -> None:
    parser = MilestoneFilter(NONCE, LABELS)
    assert parser.feed(f"f3a9 training loss: {text}\n".encode()) == b""
    assert (parser.seen, parser.values) == (["training loss"], {})


def test_without_a_nonce_nothing_is_parsed() -> None:
    parser = MilestoneFilter("", LABELS)
    assert parser.feed(b" imported packages\n") == b" imported packages\n"
    assert parser.seen == []


def test_a_line_without_end_is_passed_on() -> None:
    parser = MilestoneFilter(NONCE, LABELS)
    data = b"f3a9 " + b"x" * 100_000
    assert parser.feed(data) + parser.finish() == data


def test_short_output_is_in_head_and_tail() -> None:
    keeper = StreamKeeper(100)
    keeper.feed(b"one\ntwo\n")
    assert keeper.capture() == StreamCapture("one\ntwo\n", "one\ntwo\n", 8)
    assert capture_text(keeper.capture()) == "one\ntwo\n"


def test_medium_output_is_put_together_without_repetition() -> None:
    keeper = StreamKeeper(10)
    keeper.feed(b"0123456789abcdef")
    assert keeper.capture() == StreamCapture("0123456789", "6789abcdef", 16)
    assert capture_text(keeper.capture()) == "0123456789abcdef"


def test_long_output_names_the_gap() -> None:
    keeper = StreamKeeper(4)
    keeper.feed(b"head" + b"-" * 1000 + b"tail")
    assert capture_text(keeper.capture()) == "head\n[... 1000 bytes left out ...]\ntail"


def test_invalid_bytes_are_replaced_and_nul_left_out() -> None:
    keeper = StreamKeeper(100)
    keeper.feed(b"a\xff\0b\xc3")
    keeper.feed(b"\xa9c")  # a character in two chunks
    assert keeper.capture().tail == "a\ufffdbéc"


@given(st.lists(st.sampled_from(["epoch 1\n", "epoch 2\n", "é"]), max_size=60).map("".join), st.integers(1, 200))
def test_text_that_repeats_is_put_together_as_it_was(text: str, keep: int) -> None:
    data = text.encode()
    keeper = StreamKeeper(keep)
    keeper.feed(data)
    capture = keeper.capture()
    kept = capture.head + capture.tail
    overlap = capture.bytes < len(kept.encode()) and capture.head != capture.tail
    if overlap and not keeper.truncated and "\ufffd" not in kept:
        assert capture_text(capture) == text
