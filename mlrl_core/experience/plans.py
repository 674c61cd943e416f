"""What each slot of a wave is asked for: decided once, before the wave is sampled, and kept in the run directory.

A resumed run samples an unfinished wave again and must ask the same; what is known of earlier solutions by then may
be more than it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mlrl_core.experience.codec import decode, encode
from mlrl_core.experience.files import publish_text, read_text
from mlrl_core.experience.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """One slot's prompt: solve ``competition_id``, or improve its solution ``parent_id`` (with that reward; None for a
    solution of the same wave, whose reward its row will hold)."""

    competition_id: str
    parent_id: str | None = None
    parent_reward: float | None = None


def read_plan(run: RunDirectory, wave: int) -> tuple[SlotPlan, ...] | None:
    """The plan of a wave in slot order, or None where none has been made."""
    path = run.prompts(wave)
    if not path.exists():
        return None
    return tuple(decode(SlotPlan, slot) for slot in json.loads(read_text(path)))


def write_plan(run: RunDirectory, wave: int, plan: tuple[SlotPlan, ...]) -> None:
    """Publish the plan of a wave, durably: solutions sampled by it may outlive a power cut."""
    publish_text(run.prompts(wave), json.dumps([encode(slot) for slot in plan]), durable=True)
