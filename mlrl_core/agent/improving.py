"""Which earlier solution a prompt improves (method.md section 5): a seeded draw over what the run directory holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import polars as pl

from mlrl_core.agent.hacks import FLAGS, action_of
from mlrl_core.config.environment import HacksConfig
from mlrl_core.config.policy import ImproveConfig
from mlrl_core.records import EXCLUDED_OUTCOMES

# Columns of experience rows that candidates are made of.
CANDIDATE_COLUMNS = (
    *("solution_id", "competition_id", "slot", "code", "outcome"),
    *("reward_total", "flags"),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A solution that could be improved."""

    solution_id: str
    competition_id: str
    slot: int
    reward: float
    digest: str  # of its code, if there is any


def candidates_of(rows: pl.DataFrame, hacks: HacksConfig, whatever_came: bool = False) -> list[Candidate]:
    """The graded solutions among experience rows (``CANDIDATE_COLUMNS``), in id order.

    Small policies are poor at mending failures (method.md section 5), so those are no candidates; nor is what ``hacks``
    makes pay for a suspicion. With ``whatever_came`` both are.
    """
    costly = [flag for flag in FLAGS if action_of((flag,), hacks) != "flag"]
    wanted = (pl.col("outcome") == "graded") & pl.col("code").is_not_null()
    wanted &= ~pl.col("flags").list.eval(pl.element().is_in(costly)).list.any().fill_null(False)
    if whatever_came:
        wanted = ~pl.col("outcome").is_in(list(EXCLUDED_OUTCOMES))
    chosen = rows.filter(wanted).sort("solution_id")
    return [
        Candidate(
            solution_id=row["solution_id"],
            competition_id=row["competition_id"],
            slot=row["slot"],
            reward=row["reward_total"],
            digest=hashlib.sha256((row["code"] or "").encode("utf-8", "surrogatepass")).hexdigest(),
        )
        for row in chosen.iter_rows(named=True)
    ]


def draw_rng(run_seed: int, wave: int, slot: int, what: str) -> Random:
    """The random numbers of one decision about one slot: from the run's seed, never from its place or time."""
    digest = hashlib.sha256(f"{run_seed}/{wave}/{slot}/{what}".encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))


def choose_parent(
    candidates: Sequence[Candidate], competition_id: str, slot: int, config: ImproveConfig, rng: Random
) -> Candidate | None:
    """The solution to improve, or None for a solve prompt: by chance, or because there is nothing to improve."""
    if rng.random() >= config.improve_prob:
        return None
    mine = [each for each in candidates if each.competition_id == competition_id]
    if config.improve_source == "slot_last_valid":
        mine = [each for each in mine if each.slot == slot]
        return max(mine, key=lambda each: each.solution_id, default=None)
    best = _best_first(mine)
    if config.improve_source == "best":
        return best[0] if best else None
    return rng.choice(best[: config.top_k]) if best else None


def _best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """By reward, the earlier one first where equal; of the same program only its best run."""
    ordered = sorted(candidates, key=lambda each: (-each.reward, each.solution_id))
    return list({each.digest: each for each in reversed(ordered)}.values())[::-1]
