"""What each solution of a batch counts: inclusion, duration weight and charged reward, and what to log beside them.

Pure: from rows, cuts and the belief that the batch before has left. Weighed again after a kill, a batch is the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlrl_core.config.learning import BatchConfig
from mlrl_core.experience.batch_policy import BatchPolicy, Flight, available_times
from mlrl_core.experience.cuts import CutRecord
from mlrl_core.experience.episodes import episode_of
from mlrl_core.experience.inclusion import inclusion_probabilities, inclusion_report
from mlrl_core.experience.reward_rate import RewardRate
from mlrl_core.experience.run_directory import wave_of
from mlrl_core.experience.weights import duration_weights, effective_sample_share
from mlrl_core.records import Experience

LEAST_EFFECTIVE_SHARE = 0.2  # below this a few solutions are the whole gradient


@dataclass(frozen=True, slots=True)
class Launch:
    """One launched solution: wave, start of its program in epoch seconds, and whether it ended by itself."""

    wave: int
    started_at: float
    finished: bool


@dataclass(frozen=True, slots=True)
class Weighed:
    """Per row, in the order given: C in seconds (None where nothing limits it or it isn't known yet), probability of
    having been included, weight, and reward after the charge for time. ``rates``: per competition what is believed
    after this batch. ``warnings``: one line each, for people."""

    available_s: list[float | None]
    inclusion: list[float]
    weights: list[float]
    rewards: list[float]
    rates: dict[str, RewardRate]
    metrics: dict[str, float]
    warnings: list[str]


def weigh(
    rows: Sequence[Experience],
    settings: BatchConfig,
    policy: BatchPolicy,
    cut: CutRecord,
    launches: Sequence[Launch],
    cut_times: Mapping[int, float],
    rates: Mapping[str, RewardRate],
    run_seed: int,
    actions: int = 1,
) -> Weighed:
    """Weigh the rows that ``cut`` has admitted.

    ``launches``: those that inclusion is measured on, lost ones left out; none needed where nothing is censored.
    ``cut_times``: version to the time at which its batch was cut. ``actions``: of one episode; whether all of its rows
    are in the batch hung on the last one alone, since last actions start when all others have ended.
    """
    durations = [row.execution.duration_s if row.execution else 0.0 for row in rows]
    competitions = [row.solution.competition_id for row in rows]
    by_id = {row.solution.solution_id: row for row in rows}
    lasts = [by_id[episode_of(row.solution.solution_id, actions)[-1]] for row in rows]
    deciding = [row.execution.duration_s if row.execution else 0.0 for row in lasts]
    own = _available(policy, [Launch(row.solution.wave, row.started_at, True) for row in lasts], cut, cut_times)
    measured = zip(_available(policy, launches, cut, cut_times), launches, strict=True)
    known, finished = [], []
    for available, launch in measured:
        if available is not None:
            known.append(available)
            finished.append(launch.finished)
    enough = not policy.censors or len(known) >= (1 if policy.kills else policy.size)
    inclusion = inclusion_probabilities(deciding, known) if policy.censors and enough else [1.0] * len(rows)
    weighting = settings.duration_weighting
    cap = {"clipped": settings.duration_weight_cap, "inverse_inclusion": settings.inclusion_weight_cap}.get(weighting)
    floor = settings.duration_floor_s
    # Whether a program is in the batch depends on how long it ran, what it counts on how long it is charged.
    charged = [_charged_s(row, duration) for row, duration in zip(rows, durations, strict=True)]
    weights = duration_weights(charged, weighting, floor, competitions, cap=cap, inclusion=inclusion)
    charged = [max(seconds, floor) for seconds in charged]
    rewards, after = [row.reward.total if row.reward else math.nan for row in rows], dict(rates)
    if weighting == "reward_rate":
        after = _rates_after(rows, competitions, charged, rates, run_seed, cut.step)
        rewards = [
            after[competition].charged(reward, seconds, settings.time_charge)
            for competition, reward, seconds in zip(competitions, rewards, charged, strict=True)
        ]
    report = inclusion_report(deciding, inclusion, known, finished)
    share = effective_sample_share(weights)
    metrics = {
        **{f"inclusion/q{i}": p for i, p in enumerate(report.quintiles, 1)},
        "inclusion/min_p": report.min_p,
        "inclusion/unfinished_share_top_decile": report.unfinished_share_top_decile,
        "duration_weight/floored_frac": _share(duration < floor for duration in durations),
        "duration_weight/capped_frac": _share(cap is not None and weight >= cap for weight in weights),
        "batch/size": float(len(rows)),
        "batch/carried_frac": _share(wave_of(row.solution.solution_id) < cut.step for row in rows),
        "batch/unused": float(len(cut.closed) - len(rows)),
        "batch/in_flight": float(cut.carried),
    }
    metrics |= {
        "reward_rate/rho" if len(after) == 1 else f"reward_rate/rho/{name}": rate.rho for name, rate in after.items()
    }
    if actions > 1:
        total = sum(row.reward.total for row in rows if row.reward is not None)
        metrics["episode/return_mean"] = total / (len(rows) / actions)
    warnings = []
    if weighting == "inverse_inclusion" and not enough:
        warnings.append(
            f"only {len(known)} launches have met their last cut: inverse_inclusion counts all alike until then"
        )
    if not report.positive:
        warnings.append(
            f"of the programs with the most time {report.unfinished_share_top_decile:.0%} were cut all the same: long "
            "ones can't be admitted, and no weight brings them back"
        )
    if share < LEAST_EFFECTIVE_SHARE:
        warnings.append(f"duration weights leave {share:.0%} of the batch effective: a few solutions are the gradient")
    outcomes = {row.outcome for row in rows}
    if len(outcomes) == 1 and "graded" not in outcomes:
        warnings.append(f"every solution of the batch is {rows[0].outcome}: nothing tells good from bad")
    return Weighed(own, inclusion, weights, rewards, after, metrics, warnings)


def _charged_s(row: Experience, duration_s: float) -> float:
    return duration_s if row.reward is None or row.reward.charged_s is None else row.reward.charged_s


def _available(
    policy: BatchPolicy, launches: Sequence[Launch], cut: CutRecord, cut_times: Mapping[int, float]
) -> list[float | None]:
    """C of each launch. After a resume what ran before began in an earlier opening: no C is longer than this one."""
    if not policy.censors:
        return [None] * len(launches)
    out: list[float | None] = []
    for launch in launches:
        start = max(launch.started_at, cut.opened_at) if policy.kills else launch.started_at
        found = available_times(policy, [Flight("", launch.wave - 1, start, None)], cut.at, cut_times)
        out.append(found[0] if found else None)
    return out


def _rates_after(
    rows: Sequence[Experience],
    competitions: Sequence[str],
    seconds: Sequence[float],
    before: Mapping[str, RewardRate],
    run_seed: int,
    step: int,
) -> dict[str, RewardRate]:
    """A failed program has earned nothing: its negative reward is a lesson, not an income."""
    after = dict(before)
    for competition in sorted(set(competitions)):
        members = [i for i, other in enumerate(competitions) if other == competition]
        earned = [
            reward.total if (reward := rows[i].reward) is not None and rows[i].outcome == "graded" else 0.0
            for i in members
        ]
        digest = hashlib.sha256(f"{run_seed}/reward rate/{competition}/{step}".encode()).digest()
        belief = before.get(competition, RewardRate())
        seed = int.from_bytes(digest[:4], "big")
        after[competition] = belief.after(earned, [seconds[i] for i in members], seed)
    return after


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0
