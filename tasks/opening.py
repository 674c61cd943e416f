"""Open everything that a run needs, in the one process that owns it, and close it whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mlrl_core.config import RunConfig, config_digest
from mlrl_core.experience import RunDirectory
from mlrl_core.reporting.progress import Listener
from mlrl_core.tracking import open_tracker, tracking_uri
from mlrl_core.tracking.names import ablation_params
from mlrl_core.tracking.tracker import flatten
from tasks.agent import open_agent
from tasks.instrument import open_instrumenter
from tasks.resources import Arena, Resources, registered
from tasks.sampling import Interrupted
from tasks.score import open_grader

if TYPE_CHECKING:
    from mlrl_core.competitions import Competition

_POLL_S = 0.2
_SAMPLING_ENDS_S = 30.0  # one batch of a pass in this process


@contextmanager
def open_resources(
    run: RunDirectory, cancel: threading.Event, listener: Listener, *, learns: bool = True
) -> Iterator[Resources]:
    """Competition, policy, sandbox, learner, generator and tracker of a run, registered for its tasks. Without
    ``learns`` the learner is not started.

    Raises MlrlError or InfraError with one line when a part can't be opened; Interrupted when ``cancel`` is set
    meanwhile.
    """
    from mlrl_core.agent import prepare_policy
    from mlrl_core.competitions import label_files, open_competitions
    from mlrl_core.competitions.worker import close_workers
    from mlrl_core.generation import open_generator
    from mlrl_core.learner.client import LearnerClient
    from mlrl_core.sandbox import open_sandbox

    config = run.load_config()
    competitions = open_competitions(config.competition)
    arenas = {each.id: _arena(config, each) for each in competitions}
    with ExitStack() as stack:
        stack.callback(close_workers)
        sandbox = open_sandbox(config.sandbox, run_key=run.key, masked_files=label_files())
        stack.callback(sandbox.close)
        listener.note(f"sandbox: {sandbox.description}")

        def tell(text: str) -> None:
            _check(cancel)  # a warm start takes minutes
            listener.progress(text)

        backbone = prepare_policy(config, competitions[0], tell)
        _check(cancel)
        learner = LearnerClient(run.path, config, backbone)
        stack.callback(learner.kill)
        with ThreadPoolExecutor(1, thread_name_prefix="learner-start") as pool:
            # Both load the backbone, and most of that is importing: side by side.
            started = pool.submit(learner.start if learns else lambda: None)
            try:
                generator = open_generator(config, backbone, run.path, cancel)
                stack.callback(generator.close)
                while not started.done():
                    _check(cancel)
                    cancel.wait(_POLL_S)
            except BaseException:
                learner.kill()
                raise
            started.result()

        def abort() -> None:
            learner.kill()
            if config.generation.backend == "vllm":
                generator.close()

        if learns:
            listener.note(f"policy: {config.policy.model}, version {max(run.published_versions())}")
        params = flatten(config.model_dump()) | ablation_params(config)
        tracker = open_tracker(config.tracking, run.path, params, _tags(run, config))
        if config.tracking.enabled:
            listener.note(f"mlflow: {tracking_uri(config.tracking, run.path)}")

        resources = Resources(
            run=run,
            config=config,
            arenas=arenas,
            agent=open_agent(config, run, competitions, backbone, generator, sandbox.packages()),
            load_version=generator.load_version,
            instrument=open_instrumenter(config, backbone, generator),
            sandbox=sandbox,
            learner=learner,
            tracker=tracker,
            abort=abort,
            generation_metrics=generator.metrics,
            serving=generator.serving,
            cancel=cancel,
            listener=listener,
        )
        with registered(resources):
            try:
                yield resources
            finally:
                if resources.stopping:  # else every solution was waited for
                    resources.sampler.close(_SAMPLING_ENDS_S)


def _arena(config: RunConfig, competition: Competition) -> Arena:
    from mlrl_core.competitions import check_map, map_score

    check_map(competition, config.reward.reward_map)
    return Arena(
        inputs=competition.public_dir,
        grade=open_grader(config.reward, competition),
        map_score=lambda raw: map_score(competition, raw, config.reward.reward_map, config.reward.map_power),
    )


def _check(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise Interrupted


def _tags(run: RunDirectory, config: RunConfig) -> dict[str, str]:
    return {
        "run_path": str(run.path),
        "profile": config.profile,
        "competition": ",".join(config.competition.ids),
        "seed": str(config.seed),
        "config_hash": config_digest(config),
    }
