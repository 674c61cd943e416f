"""What every generation backend takes and gives. Token ids in, token ids out: text is never re-encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlrl_core.records import FinishReason


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response wanted. ``seed`` alone decides the randomness of this row, whatever is sampled beside it."""

    solution_id: str
    prompt_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Generated:
    """``response_ids`` ends with the end-of-sequence token when ``finish_reason`` is ``stop``. ``log_probs`` has one
    entry per response token: its log-probability at the sampling temperature, under ``policy_version``, which sampled
    all of it."""

    solution_id: str
    response_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    seconds: float
    policy_version: int


class Generator(Protocol):
    """Samples from one published version of the policy at a time."""

    def load_version(self, version: int, adapter_dir: Path) -> None:
        """Make ``version`` (a peft adapter folder) the one that is sampled from."""
        ...

    def generate(self, requests: Sequence[GenerationRequest], policy_version: int) -> Iterator[Generated]:
        """One result per request as each is there, in any order. Raises ValueError when ``policy_version`` is not the
        loaded one, InfraError when the infrastructure fails."""
        ...

    def serving(self, policy_version: int) -> int:
        """The version that ``generate`` samples from where it is asked for ``policy_version``: an earlier one, where
        that could not be loaded."""
        ...

    def metrics(self) -> dict[str, float]:
        """Measures of sampling so far, under the keys of ``tracking.names``."""
        ...

    def close(self) -> None: ...
