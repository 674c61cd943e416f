"""Tags of flow runs, so that a person finds all of a run's."""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from mlrl_core.experience import RunDirectory


def label_flow_run(run: RunDirectory) -> None:
    """Tag the flow run that calls this. Not by ``prefect.tags``: task runs inherit those, and then each asks the
    server for a concurrency slot per tag, which costs more than the task run itself."""
    if flow_run.id is None:
        return
    labels = {f"run:{run.key}", f"competition:{run.load_config().competition.id}"}
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run.id), tags=sorted({*flow_run.tags, *labels}))
