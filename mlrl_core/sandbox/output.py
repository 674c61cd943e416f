"""Captured output: bounded, byte for byte, milestones taken out on the way. Any chunking gives the same result."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mlrl_core.records import StreamCapture

START_LINE = b"\x01MLRL-START\n"
_LINE_CAP = 4096  # a milestone line that goes on longer than this is none
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class StreamKeeper:
    """Keeps the first ``keep`` and the last ``keep`` bytes of a stream and counts the others."""

    def __init__(self, keep: int) -> None:
        self.keep, self.total = keep, 0
        self._head, self._tail = bytearray(), bytearray()

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if len(self._head) < self.keep:
            self._head += data[: self.keep - len(self._head)]
        self._tail += data[-self.keep :]
        if len(self._tail) > 2 * self.keep:  # trimmed now and then: appending stays linear
            del self._tail[: -self.keep]

    @property
    def truncated(self) -> bool:
        """Bytes are missing between head and tail."""
        return self.total > 2 * self.keep

    def capture(self) -> StreamCapture:
        """Head and tail as text (a short stream is in both); invalid bytes replaced, NUL left out."""
        head, tail = _text(bytes(self._head)), _text(bytes(self._tail[-self.keep :]))
        return StreamCapture(head=head, tail=tail, bytes=self.total)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "")


def capture_text(capture: StreamCapture) -> str:
    """The stream as one text: head, a mark with the number of bytes left out, tail (without what both hold)."""
    head, tail = capture.head, capture.tail
    kept = len(head.encode()) + len(tail.encode())
    if head == tail or capture.bytes <= len(head.encode()):
        return head
    if capture.bytes >= kept:
        return f"{head}\n[... {capture.bytes - kept} bytes left out ...]\n{tail}"
    both = tail.encode()[: kept - capture.bytes]  # text that repeats overlaps anywhere
    if head.encode().endswith(both):
        return head + tail.encode()[len(both) :].decode(errors="replace")
    longest = min(len(head), len(tail))
    overlap = next((n for n in range(longest, 0, -1) if head.endswith(tail[:n])), 0)
    return head + tail[overlap:]


class StartLine:
    """Waits for the launcher's line at the very beginning of stdout and passes on what comes after it."""

    def __init__(self) -> None:
        self.seen = False
        self.failed = False  # something else came first: the program never started
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The part of ``data`` that the program printed."""
        if self.seen or self.failed:
            return data
        self._held += data
        if self._held.startswith(START_LINE):
            self.seen = True
            return self._held[len(START_LINE) :]
        if not START_LINE.startswith(self._held):
            self.failed = True
            return self._held
        return b""


class MilestoneFilter:
    """Takes the lines ``<nonce> <label>`` and ``<nonce> <label>: <number>`` out of a stream.

    The nonce is random and drawn after sampling, so that only inserted prints hold it. It counts wherever it stands
    in a line (a progress bar may have left the line open). Each label counts once; of a number the latest is kept;
    a label that comes after one that stands later in ``labels`` sets ``out_of_order``.
    """

    def __init__(self, nonce: str, labels: Sequence[str]) -> None:
        self._nonce = nonce.encode()
        self._order = {label.encode(): position for position, label in enumerate(labels)}
        self._held = b""
        self._latest = -1
        self.seen: list[str] = []
        self.values: dict[str, float] = {}
        self.out_of_order = False

    def feed(self, data: bytes) -> bytes:
        """``data`` (with what was held back before) without milestone lines."""
        if not self._nonce:
            return data
        return self._pass(self._held + data, final=False)

    def finish(self) -> bytes:
        """What was still held back at the end of the stream."""
        return self._pass(self._held, final=True) if self._nonce else b""

    def _pass(self, data: bytes, final: bool) -> bytes:
        kept = bytearray()
        self._held = b""
        while True:
            start = data.find(self._nonce)
            if start < 0:
                hold = 0 if final else _longest_suffix_that_begins(data, self._nonce)
                kept += data[: len(data) - hold]
                self._held = data[len(data) - hold :]
                return bytes(kept)
            end = data.find(b"\n", start, start + _LINE_CAP)
            if end < 0 and not final and len(data) - start < _LINE_CAP:
                kept += data[:start]
                self._held = data[start:]
                return bytes(kept)
            stop = end + 1 if end >= 0 else min(len(data), start + _LINE_CAP)
            kept += data[:start]
            if not self._count(data[start:stop]):
                kept += data[start:stop]
            data = data[stop:]

    def _count(self, line: bytes) -> bool:
        """Record a line that is a milestone; False if it is none."""
        body = line[len(self._nonce) :].rstrip(b"\r\n")
        if not body.startswith(b" "):
            return False
        label, number = body[1:], None
        if label not in self._order:
            label, colon, text = body[1:].rpartition(b": ")
            if not colon or label not in self._order:
                return False
            number = float(text) if _NUMBER.fullmatch(text.strip()) else None  # not nan, not inf
        position = self._order[label]
        name = label.decode()
        if name not in self.seen:
            self.seen.append(name)
            self.out_of_order |= position < self._latest
            self._latest = max(self._latest, position)
        if number is not None and math.isfinite(number):
            self.values[name] = number
        return True


def _longest_suffix_that_begins(data: bytes, word: bytes) -> int:
    """Length of the longest end of ``data`` that is a beginning of ``word``."""
    return next((n for n in range(min(len(word) - 1, len(data)), 0, -1) if data.endswith(word[:n])), 0)
