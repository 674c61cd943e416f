"""The milestones of a program and the prints that report them (method.md section 3)."""

from __future__ import annotations

import secrets

# In the order in which a program is expected to reach them. The labels are the paper's.
MILESTONES: tuple[str, ...] = (
    "imported packages",
    "loaded data",
    "defined model",
    "trained model",
    "predicted test labels",
)


def new_nonce() -> str:
    """A prefix that no program can know when it is written: drawn anew for each execution, 64 bits."""
    return f"#mlrl:{secrets.token_hex(8)}:"


def print_lines(label: str, nonce: str, indent: str) -> list[str]:
    """The inserted statement. It prints through ``builtins`` and swallows every failure: a program that shadows
    ``print`` or has closed its output still runs as it would have run. Flushed, so that a killed program keeps what
    it has reached."""
    return [
        f'{indent}try: __import__("builtins").print("{nonce} {label}", flush=True)',
        f"{indent}except Exception: pass",
    ]
