"""Makes a program's output harmless to read: for logs, prompts, artifacts. Nothing here decides a result."""

from __future__ import annotations

import re
import unicodedata

# CSI, OSC (up to BEL or ST), other string sequences, two-character escapes; 7-bit and C1 forms. Unclosed OSC
# sequences end at the line's end, so that one of them can't swallow everything behind it.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c|(?=\n)|$)"
    r"|\x1b[ -/]*[0-~]"
)
_SHOWN_FORMATS = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d", "\u00ad"}  # part of words in several scripts, and invisible to nobody's harm


def sanitise(text: str) -> str:
    """``text`` without escape sequences and NUL; other controls, line separators, bidi and tag marks are shown as
    ``\\xNN`` or ``\\uNNNN``. Line feeds and tabs stay; a carriage return before a line feed is dropped, any other
    becomes a line feed, so that nothing that was printed can be overwritten.
    """
    text = _ESCAPES.sub("", text.replace("\0", ""))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(_shown(character) for character in text)


def one_line(text: str, limit: int = 300) -> str:
    """``text`` sanitised, as one line of at most ``limit`` characters: for log records."""
    flat = " | ".join(part for part in sanitise(text).split("\n") if part.strip())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def fenced(text: str) -> str:
    """``text`` sanitised, between fences that it can't close: for prompts.

    Chat-template tokens stay text: tokenise the quotation with the parsing of special tokens off.
    """
    clean = sanitise(text)
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{clean}\n{fence}"


def _shown(character: str) -> str:
    if character in "\n\t" or character in _JOINERS:
        return character
    if unicodedata.category(character) not in _SHOWN_FORMATS:
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
