"""Episodes: the actions that belong together, known by the places of their solutions in a wave.

An episode of two actions lies in neighbouring slots, first the solution and then its improvement; where every solution
is an episode of its own (``actions`` 1) nothing here makes a difference. An episode is admitted to a batch whole or not
at all, and what stands for it while it is in flight is its last action: nothing has ended before that.
"""

from __future__ import annotations

from mlrl_core.experience.run_directory import slot_of, solution_id_of, wave_of


def action_of(solution_id: str, actions: int) -> int:
    """Which action of its episode a solution is, from 0."""
    return slot_of(solution_id) % actions


def episode_of(solution_id: str, actions: int) -> tuple[str, ...]:
    """All solutions of an episode, in order."""
    wave, first = wave_of(solution_id), slot_of(solution_id) // actions * actions
    return tuple(solution_id_of(wave, slot) for slot in range(first, first + actions))


def is_last(solution_id: str, actions: int) -> bool:
    """Whether an episode ends with this solution."""
    return action_of(solution_id, actions) == actions - 1


def previous_of(solution_id: str, actions: int) -> str | None:
    """The action before in the same episode, or None for the first."""
    action = action_of(solution_id, actions)
    return episode_of(solution_id, actions)[action - 1] if action else None


def next_of(solution_id: str, actions: int) -> str | None:
    """The action after in the same episode, or None for the last."""
    after = action_of(solution_id, actions) + 1
    return episode_of(solution_id, actions)[after] if after < actions else None
