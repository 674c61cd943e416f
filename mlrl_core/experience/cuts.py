"""The cuts of a run on disk: which solutions left flight at each step, and into which batch.

``<run>/batches/00007.cut.json`` is published twice: with the moment of the cut before anything is killed for it, and
with its outcome once all that it ends has ended. What is in flight between two steps follows from these files alone:
``launched = admitted + dropped + killed + lost + in flight``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mlrl_core.config import RunConfig
from mlrl_core.experience.batch_policy import BatchPolicy
from mlrl_core.experience.codec import decode, encode
from mlrl_core.experience.files import publish_text
from mlrl_core.experience.run_directory import RunDirectory, solution_id_of


@dataclass(frozen=True, slots=True)
class CutRecord:
    """One cut. Times are epoch seconds. Until the cut is complete ``admitted`` is None and ``closed`` empty.

    ``closed``: every solution that left flight here, ascending: those admitted, those of which nothing is used, and
    those that the infrastructure lost. ``carried``: the number that stays in flight.
    """

    step: int
    at: float  # what ended later could not have been in the batch
    opened_at: float  # first start of a program of the step's own wave
    admitted: tuple[str, ...] | None = None
    closed: tuple[str, ...] = ()
    carried: int = 0


def write_cut(run: RunDirectory, cut: CutRecord) -> None:
    """Publish a cut."""
    publish_text(run.cut(cut.step), json.dumps(encode(cut)), durable=True)


def read_cut(run: RunDirectory, step: int) -> CutRecord | None:
    """The cut of a step as far as it has been decided, or None."""
    path = run.cut(step)
    return decode(CutRecord, json.loads(path.read_text())) if path.exists() else None


def require_cut(run: RunDirectory, step: int) -> CutRecord:
    """The complete cut of a step. Raises FileNotFoundError where it isn't complete."""
    cut = read_cut(run, step)
    if cut is None or cut.admitted is None:
        raise FileNotFoundError(f"{run.cut(step)}: the cut of step {step} has not been made")
    return cut


def batch_policy_of(config: RunConfig) -> BatchPolicy:
    """The run's batch policy. What it admits is episodes."""
    batch = config.batch
    carries, windows = batch.batch_policy == "first_k_carry", batch.batch_policy == "window"
    return BatchPolicy(
        batch.batch_policy,
        batch.size // config.improve.actions,
        max_staleness=batch.max_staleness if carries else None,
        on_stale=batch.on_stale,
        window_s=batch.window_s if windows else float("inf"),
    )


def wave_ids(run: RunDirectory, config: RunConfig, wave: int) -> list[str]:
    """The solutions of a wave, ascending.

    Where solutions are carried over, the first wave is one batch, so that the policy's first step is not made of fast
    solutions alone, the second fills up to ``wave_size``, and each later one replaces what the last cut closed.
    """
    size = config.wave_size
    if config.batch.batch_policy == "first_k_carry":
        size = config.batch.size if wave == 1 else config.wave_size - require_cut(run, wave - 1).carried
    return [solution_id_of(wave, slot) for slot in range(size)]


def closed_ids(run: RunDirectory, config: RunConfig, step: int) -> list[str]:
    """The solutions that left flight at a step, ascending; none while its cut is incomplete.

    A step without a cut file was made before cuts were recorded: its whole wave.
    """
    cut = read_cut(run, step)
    if cut is None:
        return wave_ids(run, config, step) if step in run.published_versions() else []
    return list(cut.closed)
