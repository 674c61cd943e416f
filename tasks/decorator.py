"""The project's one task decorator: caching, retries, names and time limits are decided here and nowhere else."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import exponential_backoff

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError

P = ParamSpec("P")
R = TypeVar("R")

# Prefect's own time limit does not interrupt a blocking call in a thread: it is the net under the stage's own
# deadline, which is shorter by at least this and really ends what it waits for.
MARGIN_S = 60.0


def is_infra_error(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Retry only what the infrastructure broke; a bug, a user's mistake or a timeout would only repeat itself."""
    try:
        state.result()
    except InfraError:
        return True
    except BaseException:
        return False
    return False


class _KnownLimitation(logging.Filter):
    """Prefect warns at every run of a task in a thread that its time limit can't interrupt a blocking call."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "is running in a worker thread" not in record.getMessage()


# The inner deadlines are the answer to that warning (see MARGIN_S); repeated for every task run it hides the others.
logging.getLogger("prefect.task_runs").addFilter(_KnownLimitation())


@dataclass(frozen=True)
class StageTask(Generic[P, R]):
    """A stage as a Prefect task. ``for_run`` is the only way to get the task, so none is without a time limit."""

    fn: Callable[P, R]
    deadline_s: Callable[[RunConfig], float]
    _task: Task[P, R]

    @property
    def name(self) -> str:
        return self.fn.__name__

    def for_run(self, config: RunConfig) -> Task[P, R]:
        """The task with the time limit that follows from the run's configuration."""
        return self._task.with_options(timeout_seconds=self.deadline_s(config) + MARGIN_S)


def mlrl_task(
    run_name: str, deadline_s: Callable[[RunConfig], float], retries: int
) -> Callable[[Callable[P, R]], StageTask[P, R]]:
    """Make a stage of a plain synchronous function.

    ``run_name`` is a template over its parameters, e.g. ``execute {competition} {solution_id}``. ``deadline_s`` is
    the function's own deadline in seconds. ``retries`` are for infrastructure faults, with exponential backoff.
    """

    def decorate(fn: Callable[P, R]) -> StageTask[P, R]:
        if inspect.iscoroutinefunction(fn):
            raise TypeError(f"{fn.__name__}: a stage is synchronous, a time limit can't interrupt blocking async code")
        made = task(
            name=fn.__name__,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=retries,
            retry_delay_seconds=exponential_backoff(backoff_factor=1),
            retry_jitter_factor=0.5,
            retry_condition_fn=is_infra_error,
        )(fn)
        return StageTask(fn, deadline_s, made)

    return decorate
