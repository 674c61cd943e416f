"""Fit the parts of a prompt into a token budget: who is cut first is fixed, and every cut is marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlrl_core.errors import MlrlError

Count = Callable[[str], int]  # tokens of a text

_CUT = "[cut]\n"
_TRIES = 4
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prompt. ``within(room)`` is its text in at most ``room`` tokens, empty where nothing of it fits.

    ``rank``: parts with a lower rank are cut first; None is never cut (``within`` is then asked without a limit).
    """

    name: str
    within: Callable[[int], str]
    rank: int | None


def fixed(name: str, text: str) -> Part:
    """A part that is never cut."""
    return Part(name, lambda room: text, None)


def compose(parts: Sequence[Part], max_tokens: int, count: Count) -> str:
    """The parts in the given order, at most ``max_tokens`` long: the highest rank takes what it needs, then the next.

    Raises MlrlError when what is never cut is too long by itself.
    """
    never_cut = "".join(part.within(_ALL) for part in parts if part.rank is None)
    needed = count(never_cut)
    if needed > max_tokens:
        names = " and ".join(part.name for part in parts if part.rank is None)
        raise MlrlError(f"prompt.max_tokens = {max_tokens} is too small: the {names} alone needs {needed} tokens")
    room_for_all = max_tokens - needed
    for _ in range(_TRIES):
        texts = _fill(parts, room_for_all, count)
        # Tokens at a seam may merge or split, so only the whole says how long it is.
        excess = count("".join(texts)) - max_tokens
        if excess <= 0:
            return "".join(texts)
        room_for_all = max(room_for_all - excess, 0)
    return never_cut


def _fill(parts: Sequence[Part], room: int, count: Count) -> list[str]:
    texts = [part.within(_ALL) if part.rank is None else "" for part in parts]
    ranked = sorted((i for i, part in enumerate(parts) if part.rank is not None), key=lambda i: -_rank(parts[i]))
    for index in ranked:
        texts[index] = parts[index].within(_ALL)
        needed = count(texts[index])
        if needed > room:  # the first that is cut leaves nothing to those of a lower rank
            texts[index] = parts[index].within(room)
            break
        room -= needed
    return texts


def _rank(part: Part) -> int:
    assert part.rank is not None
    return part.rank


def cut_end(text: str, room: int, count: Count) -> str:
    """The longest prefix of whole lines that fits; the cut is marked. Empty when not even one line fits."""
    if count(text) <= room:
        return text
    lines = text.split("\n")
    kept = _most(len(lines), lambda n: count("\n".join(lines[:n]) + f"\n{_CUT}") <= room)
    head = "\n".join(lines[:kept])
    return f"{head}\n{_CUT}" if head.strip() else ""


def cut_line(text: str, room: int, count: Count) -> str:
    """One line, or its longest beginning that fits; the cut is marked. Empty when nothing of it fits."""
    if count(text) <= room:
        return text
    kept = _most(len(text) - 1, lambda n: count(f"{text[:n]}…\n") <= room)
    return f"{text[:kept]}…\n" if kept else ""


def cut_middle(text: str, room: int, count: Count, mark: str) -> str:
    """Head and tail of ``text`` in whole lines, as much as fits; ``mark`` (with ``{lines}``) stands for the middle.
    Where not even one line fits, head and tail of the whole in letters; empty when nothing of those does."""
    if count(text) <= room:
        return text
    lines = text.rstrip("\n").split("\n")

    def cut(kept: int) -> str:
        tail = kept // 2
        middle = mark.format(lines=len(lines) - kept)
        return "".join(f"{line}\n" for line in [*lines[: kept - tail], middle, *lines[len(lines) - tail :]])

    def cut_letters(kept: int) -> str:
        return f"{text[: kept - kept // 2]} [...] {text[len(text) - kept // 2 :]}"

    if kept := _most(len(lines) - 1, lambda n: count(cut(n)) <= room):
        return cut(kept)
    kept = _most(len(text) - 1, lambda n: count(cut_letters(n)) <= room)
    return cut_letters(kept) if kept else ""


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest n up to ``limit`` that fits, given that fewer always fit where more do; 0 when none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
