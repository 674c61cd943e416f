"""A training run: wave, batch, update, until the last step. The run directory says what is done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Cancelled
from prefect.task_runners import ThreadPoolTaskRunner

from flows.labels import label_flow_run
from flows.stopping import stoppable
from flows.waves import Waves
from mlrl_core.competitions import open_competitions, with_execution_settings
from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.experience import RunDirectory
from mlrl_core.experience.batch_policy import biased_pair
from mlrl_core.experience.cuts import batch_policy_of
from mlrl_core.experience.state import RunState, RunStatus, read_state, write_state
from mlrl_core.experience.statistics import COLUMNS, StepStatistics, run_statistics, step_statistics
from mlrl_core.reporting.report import write_report
from mlrl_core.tracking.names import Cumulative, step_metrics
from mlrl_core.tracking.tracker import EndStatus
from tasks.batch import batch, batch_metrics
from tasks.opening import open_resources
from tasks.resources import Resources, find_resources, listener_of
from tasks.sampling import Interrupted
from tasks.update import update, version_metrics

if TYPE_CHECKING:
    from prefect.futures import PrefectFuture
    from prefect.states import State

_log = logging.getLogger(__name__)

_POLL_S = 0.25
_STEPS_IN_FORECAST = 3
_END_STATUS: dict[RunStatus, EndStatus] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def _name() -> str:
    parameters = flow_run.parameters
    return f"train {Path(parameters['run_dir']).name if parameters['run_dir'] else parameters['profile']}"


@flow(
    name="train",
    flow_run_name=_name,
    task_runner=ThreadPoolTaskRunner(max_workers=2),  # type: ignore[arg-type]
    persist_result=False,
)
def train(
    profile: str = "nano",
    competition: str = "",
    seed: int = 0,
    overrides: Sequence[str] = (),
    run_dir: str = "",
) -> State[Any] | None:
    """Train, or go on training where ``run_dir`` holds a run (the other parameters then come from there).

    No flow retries: going on from the run directory is the retry, by hand or by the next schedule.
    """
    run = _open_or_create(profile, competition, seed, overrides, run_dir)
    shared = find_resources(str(run.path))
    label_flow_run(run)
    cancel = shared.cancel if shared else threading.Event()
    with stoppable(cancel, run):
        try:
            if shared is not None:
                _train(shared)
            else:
                with run.owned(), open_resources(run, cancel, listener_of(str(run.path))) as resources:
                    _train(resources)
        except BaseException:  # Prefect's own signal handler may have been in place, and raises what is no Exception
            if not cancel.is_set():
                raise
            _record_end(run, "interrupted")
            return Cancelled(message=f"interrupted: go on by `mlrl train --resume {run.path}`")
    return None


def _open_or_create(profile: str, competition: str, seed: int, overrides: Sequence[str], run_dir: str) -> RunDirectory:
    if run_dir and (Path(run_dir) / "config.toml").exists():
        return RunDirectory.open(Path(run_dir))
    chosen = [f"competition.id={competition}"] if competition else []
    config = load_config(profile, [*chosen, *overrides], seed)
    config = with_execution_settings(config, open_competitions(config.competition))
    name = f"{config.competition.id}-{profile}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{seed}"
    return RunDirectory.create(Path(run_dir) if run_dir else Path("runs") / name, config)


def _train(resources: Resources) -> None:
    status: RunStatus = "failed"
    if flow_run.id is not None:
        resources.tracker.set_tag("prefect.flow_run_id", flow_run.id)
    try:
        _Training(resources).run()
        status = "finished"
    except BaseException:
        status = "interrupted" if resources.cancel.is_set() else "failed"
        raise
    finally:
        if status != "finished":
            resources.failed.set()
            resources.abort()
        _record_end(resources.run, status)
        if status != "interrupted":  # whoever pressed Ctrl-C is waiting
            _report(resources)
        resources.tracker.end(_END_STATUS[status])


def _report(resources: Resources) -> None:
    """The report of what there is; never a reason to fail. A wave that was cut off has no place in it."""
    try:
        report = write_report(resources.run, range(1, max(resources.run.published_versions()) + 1))
    except MlrlError:
        return  # no step is done
    except Exception:
        _log.exception("the report could not be written: `mlrl report %s` tries again", resources.run.path)
        return
    for path, folder in ((report.curve, ""), (report.first_program, "programs"), (report.best_program, "programs")):
        if path is not None:
            resources.tracker.log_file(path, folder)


def _record_end(run: RunDirectory, status: RunStatus) -> None:
    write_state(run, read_state(run).ended(status))


class _Training:
    """The loop over steps. Step n: version n - 1 samples wave n, batch n is cut, and makes version n."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.run_dir = str(resources.run.path)
        self.started = time.monotonic()
        self.waves = Waves(resources)
        self.before = read_state(resources.run)
        self.state = self.before
        self.history: list[StepStatistics] = []

    def run(self) -> None:
        """From the newest published version to the last step."""
        try:
            self._run()
        except BaseException:
            self.resources.failed.set()
            self.waves.stop()
            raise

    def _run(self) -> None:
        resources = self.resources
        done = max(resources.run.published_versions(), default=0)
        config = resources.config
        bias = biased_pair(batch_policy_of(config), config.batch.duration_weighting)
        if bias is not None:
            resources.listener.note(f"warning: {bias} (docs/duration.md)")
        self.history = run_statistics(resources.store, range(1, done + 1))
        self.state = self._catch_up(done)
        write_state(resources.run, self.state.ended("running"))
        if done < config.steps:  # a wave that a kill found unsampled is sampled as soon as it is restored
            resources.load_version(done, resources.run.version(done) / "adapter")
        self.waves.restore(done)
        for step in range(done + 1, config.steps + 1):
            resources.check()
            resources.load_version(step - 1, resources.run.version(step - 1) / "adapter")
            self.waves.start(step)
            self.waves.cut(step)
            resources.listener.updating(step)
            digest = self._result(batch.for_run(resources.config).submit(self.run_dir, step))
            self._result(update.for_run(resources.config).submit(self.run_dir, step, digest))
            wall_s = self.before.wall_s + time.monotonic() - self.started
            self.state = self.state.after(step, wall_s, time.time())
            write_state(resources.run, self.state)
            best = self.history[-1].best if self.history else None
            self.history.append(step_statistics(resources.store.step_frame(step, COLUMNS), step, best))
            self._track(step)
            resources.listener.step(self.history[-1], wall_s, self._seconds_left(step))
        self._log_waves(self.waves.finish())

    def _catch_up(self, done: int) -> RunState:
        """The state up to the newest version: a kill may have come between publishing it and writing the state."""
        self.state = self.before
        for step in range(len(self.state.steps) + 1, done + 1):
            published = (self.resources.run.version(step) / "DONE").stat().st_mtime
            self.state = self.state.after(step, self.state.wall_s, published)
        if done:  # what was tracked last may have been lost in the kill; a point sent twice stays one
            for step in range(max(len(self.before.steps), 1), done + 1):
                self._track(step)
        return self.state

    def _result(self, future: PrefectFuture[Any]) -> Any:
        """What a task returns, or its exception; ends early when the run is being stopped."""
        while not _ended(future):
            if self.resources.cancel.is_set():
                self.resources.abort()
                raise Interrupted
        self.resources.check()
        return future.result()

    def _seconds_left(self, step: int) -> float:
        recent = [0.0, *(done.wall_s for done in self.state.steps)][-_STEPS_IN_FORECAST - 1 :]
        return (recent[-1] - recent[0]) / (len(recent) - 1) * (self.resources.config.steps - step)

    def _track(self, step: int) -> None:
        past = self.history[:step]
        cumulative = Cumulative(
            exec_s=sum(each.execution_s for each in past),
            wall_s=self.state.steps[step - 1].wall_s,
            solutions=sum(each.rows for each in past),
            generated_tokens=sum(each.generated_tokens for each in past),
        )
        measured = version_metrics(self.resources.run, step) | batch_metrics(self.resources.run, step)
        measured |= self.resources.generation_metrics()
        metrics = step_metrics(past[-1], measured, cumulative)
        self.resources.tracker.log_metrics(step, metrics, self.state.steps[step - 1].finished_at)
        self._log_waves(self.resources.store.waves_closed_at(step))

    def _log_waves(self, waves: Sequence[int]) -> None:
        for wave in waves:
            self.resources.tracker.log_file(self.resources.store.shard(wave), "experiences")


def _ended(future: PrefectFuture[Any]) -> bool:
    future.wait(timeout=_POLL_S)
    return future.state.is_final()
