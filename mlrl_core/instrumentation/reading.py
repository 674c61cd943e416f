"""Programs as Python reads them from a file."""

from __future__ import annotations

import ast
import warnings

# What a text that is no program raises, or one that is nested too deeply to be looked at.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_NAME = "<program>"
# What Python has to say of a program goes to the program's own output, not to that of the host.
warnings.filterwarnings("ignore", module=_NAME)


def read(code: str) -> ast.Module:
    """The syntax tree. In bytes, so that a coding line or a byte order mark counts as it does in a file. Raises
    ``UNREADABLE``."""
    return ast.parse(code.encode(), _NAME)


def read_compiled(code: str) -> ast.Module:
    """The same of a program that compiles as well: some rules, where ``from __future__`` may stand for one, only hold
    then. Raises ``UNREADABLE``."""
    compile(code.encode(), _NAME, "exec", dont_inherit=True)
    return read(code)
