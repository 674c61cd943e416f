"""Decide what each solution of an update counts."""

from __future__ import annotations

import json

import polars as pl

from mlrl_core.errors import InfraError
from mlrl_core.experience import RunDirectory
from mlrl_core.experience.batch_policy import BatchPolicy
from mlrl_core.experience.cuts import CutRecord, batch_policy_of, read_cut, require_cut
from mlrl_core.experience.episodes import next_of
from mlrl_core.experience.files import publish_text
from mlrl_core.experience.reward_rate import RewardRate
from mlrl_core.experience.run_directory import wave_of
from mlrl_core.experience.weighing import Launch, Weighed, weigh
from mlrl_core.learner.batch_file import Asked, BatchRow, batch_digest, read_batch, write_batch
from mlrl_core.records import Experience
from tasks.decorator import mlrl_task
from tasks.resources import Resources, resources_of


@mlrl_task("batch {number}", deadline_s=lambda config: 540.0, retries=0)
def batch(run_dir: str, number: int) -> str:
    """Publish batch ``number``: the solutions that its cut has admitted, in id order. Returns its digest.

    A batch that is there stays as it was decided.
    """
    resources = resources_of(run_dir)
    run = resources.run
    path = run.batch(number)
    if path.exists():
        return batch_digest(read_batch(path))
    cut = require_cut(run, number)
    rows = _admitted(resources, cut)
    if not rows:
        raise InfraError(f"wave {number} has no solution that could be trained on")
    policy, actions = batch_policy_of(resources.config), resources.config.improve.actions
    launches, cut_times = _launches(resources, policy, cut)
    weighed = weigh(
        rows,
        resources.config.batch,
        policy,
        cut,
        launches,
        cut_times,
        _rates(run, number - 1),
        resources.config.seed,
        actions,
    )
    for warning in weighed.warnings:
        resources.listener.note(f"step {number}: {warning}")
    facts = {"metrics": weighed.metrics, "reward_rates": {k: rate.as_dict() for k, rate in weighed.rates.items()}}
    publish_text(run.batch_facts(number), json.dumps(facts, indent=1), durable=True)
    return write_batch(path, _batch_rows(rows, weighed, actions))


def batch_metrics(run: RunDirectory, number: int) -> dict[str, float]:
    """What was found while a batch was weighed; nothing for batches of older runs."""
    path = run.batch_facts(number)
    return json.loads(path.read_text())["metrics"] if path.exists() else {}


def _rates(run: RunDirectory, number: int) -> dict[str, RewardRate]:
    path = run.batch_facts(number)
    stored = json.loads(path.read_text())["reward_rates"] if path.exists() else {}
    return {competition: RewardRate.from_dict(state) for competition, state in stored.items()}


def _admitted(resources: Resources, cut: CutRecord) -> list[Experience]:
    admitted = set(cut.admitted or ())
    waves = sorted({wave_of(each) for each in admitted})
    rows = [row for wave in waves for row in resources.store.read(wave)]
    return [row for row in rows if row.solution.solution_id in admitted]


def _launches(resources: Resources, policy: BatchPolicy, cut: CutRecord) -> tuple[list[Launch], dict[int, float]]:
    """What inclusion is measured on: the wave that was cut, or the latest waves whose last cut has passed. Of an
    episode its last action, which is what a cut may find unfinished."""
    actions = resources.config.improve.actions
    if not policy.censors:
        return [], {}
    newest = cut.step - (policy.drops_after or 0)
    launches: list[Launch] = []
    cut_times: dict[int, float] = {}
    for wave in range(newest, 0, -1):
        if len(launches) * actions >= resources.config.wave_size:
            break
        columns = ["wave", "started_at", "outcome"]
        rows = resources.store.frame([wave], [*columns, "slot"]).filter(
            (pl.col("outcome") != "infra_error") & (pl.col("slot") % actions == actions - 1)
        )
        rows = rows.select(columns)
        launches += [Launch(wave, started, outcome != "cancelled") for wave, started, outcome in rows.iter_rows()]
        last = cut if wave == newest else read_cut(resources.run, wave + (policy.drops_after or 0))
        assert last is not None, "every earlier step has been cut"
        cut_times[last.step - 1] = last.at
        if policy.kills:
            break
    return launches, cut_times


def _batch_rows(rows: list[Experience], weighed: Weighed, actions: int) -> list[BatchRow]:
    outcomes = {row.solution.solution_id: row.outcome for row in rows}

    def asked(row: Experience) -> Asked:
        if row.solution.prompt_kind == "solve":
            return "solve"
        # What isn't of the same episode was chosen because it was graded.
        return "improve" if outcomes.get(row.solution.parent_id or "", "graded") == "graded" else "mend"

    return [
        BatchRow(
            experience_id=row.solution.solution_id,
            competition_id=row.solution.competition_id,
            prompt_ids=row.solution.prompt_ids,
            response_ids=row.solution.response_ids,
            rollout_log_probs=row.solution.log_probs,
            reward=weighed.rewards[i],
            duration_s=row.execution.duration_s if row.execution else 0.0,
            duration_weight=weighed.weights[i],
            policy_version=row.solution.policy_version,
            outcome=row.outcome,
            finish_reason=row.solution.finish_reason,
            inclusion=weighed.inclusion[i],
            available_s=weighed.available_s[i],
            asked=asked(row),
            next_id=next_of(row.solution.solution_id, actions),
        )
        for i, row in enumerate(rows)
    ]
