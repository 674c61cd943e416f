"""The milestones of a program and the prints that report them (method.md section 3)."""

from __future__ import annotations

import ast
import secrets
from dataclasses import dataclass

# In the order in which a program is expected to reach them. The five without a value are the paper's labels.
MILESTONES: tuple[str, ...] = (
    "imported packages",
    "loaded data",
    "defined model",
    "training loss",
    "trained model",
    "validation score",
    "predicted test labels",
)
# These print the number in a variable; without such a variable they have no place.
VALUED: frozenset[str] = frozenset({"training loss", "validation score"})
SWALLOWED = "except BaseException: pass"  # the second line of what is inserted


@dataclass(frozen=True, slots=True)
class Place:
    """After which statement a milestone is reached, and for a valued one the name that then holds the number."""

    statement: ast.stmt
    variable: str | None = None


def new_nonce() -> str:
    """A prefix that no program can know when it is written: drawn anew for each execution, 64 bits."""
    return f"#mlrl:{secrets.token_hex(8)}:"


def print_lines(label: str, nonce: str, indent: str, variable: str | None = None) -> list[str]:
    """The inserted statement. It writes to the output that the program was started with, whatever the program has made
    of ``print`` or ``sys.stdout`` (what it captures holds no milestone), and swallows every failure: a program that has
    closed its output, or a variable that holds no number, runs as it would have run. Flushed, so that a killed program
    keeps what it has reached.

    A milestone without a value prints once, however often a loop comes by: a flood of prints would cost run time and
    count against the output limit. The mark of that, an attribute of the output, says nothing of the nonce.
    """
    mark = f'"_mlrl_{MILESTONES.index(label)}"'
    once = f"{mark} in o.__dict__ or o.__dict__.__setitem__({mark}, 1) or "
    if variable is None:
        text = f'"{nonce} {label}\\n"'
    else:
        once, text = "", f'"{nonce} {label}: %.12g\\n" % {variable}'
    written = f'(lambda o: {once}(o.write({text}), o.flush()))(__import__("sys").__stdout__)'
    return [f"{indent}try: {written}", f"{indent}{SWALLOWED}"]
