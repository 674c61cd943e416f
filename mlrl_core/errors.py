"""Two kinds of failure that everything above must tell apart."""

from __future__ import annotations


class MlrlError(Exception):
    """A mistake of the user: the message is one line that says what is wrong and how to mend it (exit 2)."""


class InfraError(Exception):
    """The infrastructure failed (engine, disk, server, our own grader): retryable, never a reward."""
