"""Decide what an update consumes."""

from __future__ import annotations

from mlrl_core.errors import InfraError
from mlrl_core.experience.weights import duration_weights
from mlrl_core.learner.batch_file import BatchRow, batch_digest, read_batch, write_batch
from mlrl_core.records import EXCLUDED_OUTCOMES, Experience
from tasks.decorator import mlrl_task
from tasks.resources import Resources, resources_of


@mlrl_task("batch {number}", deadline_s=lambda config: 540.0, retries=0)
def batch(run_dir: str, number: int) -> str:
    """Publish batch ``number`` from wave ``number`` (``wait_all``: the whole wave). Returns its digest.

    A batch that is there stays as it was decided. Rows are in id order, ``infra_error`` and ``cancelled`` left out.
    """
    resources = resources_of(run_dir)
    path = resources.run.batch(number)
    if path.exists():
        return batch_digest(read_batch(path))
    rows = [row for row in resources.store.read(number) if row.outcome not in EXCLUDED_OUTCOMES]
    if not rows:
        raise InfraError(f"wave {number} has no solution that could be trained on")
    return write_batch(path, _batch_rows(resources, rows))


def _batch_rows(resources: Resources, rows: list[Experience]) -> list[BatchRow]:
    settings = resources.config.batch
    durations = [row.execution.duration_s if row.execution else 0.0 for row in rows]
    competitions = [row.solution.competition_id for row in rows]
    weights = duration_weights(durations, settings.duration_weighting, settings.duration_floor_s, competitions)
    batch_rows: list[BatchRow] = []
    for row, duration_s, weight in zip(rows, durations, weights, strict=True):
        solution, reward = row.solution, row.reward
        assert reward is not None, "an outcome that counts has a reward"
        batch_rows.append(
            BatchRow(
                experience_id=solution.solution_id,
                competition_id=solution.competition_id,
                prompt_ids=solution.prompt_ids,
                response_ids=solution.response_ids,
                rollout_log_probs=solution.log_probs,
                reward=reward.total,
                duration_s=duration_s,
                duration_weight=weight,
                policy_version=solution.policy_version,
                outcome=row.outcome,
                finish_reason=solution.finish_reason,
            )
        )
    return batch_rows
