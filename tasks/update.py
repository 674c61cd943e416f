"""One policy update."""

from __future__ import annotations

import json

from mlrl_core.experience import RunDirectory
from tasks.decorator import mlrl_task
from tasks.resources import resources_of


@mlrl_task("update {number}", deadline_s=lambda config: config.learner.update_deadline_s, retries=1)
def update(run_dir: str, number: int, digest: str) -> int:
    """Make version ``number`` of version ``number - 1`` and batch ``number``. Returns the version.

    The learner applies a batch exactly once: asked again, it returns the version that it has published.
    """
    resources = resources_of(run_dir)
    result = resources.learner.update(f"{number:05d}", resources.run.batch(number), digest, number - 1)
    if result.version != number:
        raise RuntimeError(f"update {number} made version {result.version}: the run directory is not consistent")
    return result.version


def version_metrics(run: RunDirectory, number: int) -> dict[str, float]:
    """The learner's numbers of a published version, from its folder."""
    path = run.version(number) / "metrics.json"
    return {key: float(value) for key, value in json.loads(path.read_text()).items()}
