"""The learner's process: load once, then answer update requests until its parent goes away.

``python -m mlrl_core.learner.worker --run-dir RUN --backbone FOLDER --session RUN/learner/attempt-00001``

With ``learner.ranks`` above 1, torchrun starts that many: all train, the first one holds the lock, publishes and
answers. Ranks wait for requests by looking at the folder, never within a collective.

It ends on end-of-file on its stdin, so it dies with its parent even when that is killed. Ctrl-C is the parent's
business and ignored here. Any failure within an update ends the process, and torchrun then the others: weights may be
half-way, and the last published version is the way back.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlrl_core.config import config_digest, load_run_config
from mlrl_core.errors import MlrlError
from mlrl_core.learner.batch_file import BatchRow, read_batch
from mlrl_core.learner.session import Session, get, put
from mlrl_core.learner.versions import CANARY_TEMPERATURE, Manifest, VersionStore, folder_digest

if TYPE_CHECKING:
    from mlrl_core.learner.engine import Engine

POLL_S = 0.01
BEAT_S = 5.0
FIRST_SPEAKS_S = 3.0  # torchrun ends the group with its first process that ends: that shall be the one that answers
LOCK_WAIT_S = 20.0  # a killed predecessor needs a moment to be gone


class Worker:
    """One attempt at being the run's learner."""

    def __init__(self, run_dir: Path, backbone_dir: Path, session: Session, rank: int = 0) -> None:
        self.run_dir, self.backbone_dir, self.session, self.rank = run_dir, backbone_dir, session, rank
        self.config = load_run_config(session.config)
        self.store = VersionStore(run_dir)
        self.state = "loading"
        self.engine: Engine | None = None
        self.idle_since = time.monotonic()
        self.sampler_checked = False

    def run(self) -> None:
        """Serve until the process is ended."""
        if not self.rank:
            self._lock()  # stays open, and is released by the kernel, as long as this process lives
        threading.Thread(target=self._beat_forever, daemon=True).start()
        self._load()
        if not self.rank:
            put(self.session.ready, {"version": self._engine.version})
        number = 1
        self._enter("idle")
        self.idle_since = time.monotonic()
        while True:
            request = get(self.session.request(number))
            if request is None:
                time.sleep(POLL_S)
                continue
            self._answer(number, request)
            self._enter("idle")
            self.idle_since = time.monotonic()
            number += 1

    def _answer(self, number: int, request: dict[str, Any]) -> None:
        try:
            answer = {"status": "ok"} | self.update(**request)
        except Refused as error:
            answer = {"status": "refused", "message": str(error)}
        except MlrlError as error:
            self._say(number, {"status": "mistake", "message": str(error)})
            raise
        except BaseException as error:
            self._say(number, {"status": "fault", "message": f"{type(error).__name__}: {error}"})
            raise
        self._say(number, answer)

    def _say(self, number: int, answer: dict[str, Any]) -> None:
        if not self.rank:
            put(self.session.answer(number), answer)

    def update(self, batch_id: str, batch_path: str, digest: str, parent_version: int) -> dict[str, Any]:
        """Make and publish the version of a batch, once: asked again, answer with the version that is there."""
        started = time.monotonic()
        idle_s = started - self.idle_since
        done = self.store.of_batch(batch_id)
        if done is not None:
            if done.batch_digest != digest:
                raise Refused(
                    f"batch {batch_id} made version {done.version} already, from other rows "
                    f"({str(done.batch_digest)[:12]}, now {digest[:12]}): a batch never changes once it is used"
                )
            return self._result(done.version, {"repeated": 1.0, "total_s": time.monotonic() - started})
        engine = self._engine
        if parent_version != engine.version:
            raise Refused(f"batch {batch_id} is for version {parent_version}, but the newest is {engine.version}")
        self._enter("updating")
        try:
            rows = read_batch(Path(batch_path), digest)
        except MlrlError as error:
            raise Refused(str(error)) from None
        self._check_sampler(rows)
        read_s = time.monotonic() - started
        metrics = engine.update(rows)
        engine.check_finite()
        if metrics["actor/grad_norm"] > 0 and not metrics["adapter/delta_norm"]:
            raise MlrlError(
                f"update {batch_id} has a gradient but changed no weight: ppo.learning_rate = "
                f"{self.config.ppo.learning_rate:g} is too small to matter (0 switches the trainer off)"
            )
        trained_s = time.monotonic() - started - read_s
        self._enter("publishing")
        metrics["timing_s/idle"] = idle_s
        self._publish(metrics, parent_version, batch_id, digest)
        if not self.rank:
            self.store.prune()
        total_s = time.monotonic() - started
        timings = {"read_s": read_s, "train_s": trained_s, "publish_s": total_s - read_s - trained_s}
        return self._result(engine.version, timings | {"total_s": total_s})

    def _check_sampler(self, rows: list[BatchRow]) -> None:
        """Once per process: what the sampler says of its tokens must be what this policy says of them."""
        if self.sampler_checked:
            return
        engine, limit = self._engine, self.config.learner.mismatch_limit
        engine.check_ids(rows)
        gap = engine.sampler_gap(rows)
        if gap is not None and gap > limit:
            raise Refused(
                f"the sampler's log-probabilities of version {engine.version} differ from the learner's by {gap:.3g} "
                f"on average (learner.mismatch_limit {limit:g}): check that it serves this version's adapter, at "
                f"temperature {self.config.sampling.temperature:g}, with log-probabilities after temperature, without "
                f"top-p, top-k or penalties, in a dtype near {self.config.policy.dtype}"
            )
        self.sampler_checked = gap is not None

    def _result(self, version: int, timings: dict[str, float]) -> dict[str, Any]:
        folder = str(self.store.path(version))
        return {
            "version": version,
            "version_dir": folder,
            "metrics": self.store.metrics(version),
            "timings": timings,
        }

    def _load(self) -> None:
        from transformers.utils import logging

        from mlrl_core.learner.engine import Engine
        from mlrl_core.learner.ranks import Ranks

        logging.disable_progress_bar()
        newest = None if self.rank else self.store.recover()
        ranks = Ranks.join(self.config.learner.device, self.config.learner.update_deadline_s)
        ranks.barrier()  # the others look at the versions when what a killed writer left is gone
        newest = self.store.newest() if self.rank else newest
        self.engine = engine = Engine(self.backbone_dir, self.config, ranks)
        if newest is None:
            self._publish({}, None, None, None)
        else:
            engine.load(self.store.path(newest.version) / "state")
            if engine.version != newest.version:
                raise MlrlError(f"{self.store.path(newest.version)}: its state is of version {engine.version}")

    def _publish(self, metrics: dict[str, float], parent: int | None, batch_id: str | None, digest: str | None) -> None:
        engine, started = self._engine, time.monotonic()

        def write(folder: Path) -> Manifest:
            engine.ranks.barrier()  # the folder is there
            engine.export_adapter(folder / "adapter")
            engine.save(folder / "state")
            if metrics:
                metrics["timing_s/publish"] = time.monotonic() - started
            canary_ids, canary_log_probs = engine.canary()
            engine.ranks.barrier()  # every rank has written
            if not self.rank:
                (folder / "metrics.json").write_text(json.dumps(metrics, indent=2, sort_keys=True))
            return Manifest(
                version=engine.version,
                parent=parent,
                batch_id=batch_id,
                batch_digest=digest,
                config_digest=config_digest(self.config),
                adapter_sha256=folder_digest(folder / "adapter") if not self.rank else "",
                unchanged=parent is not None and not metrics["adapter/delta_norm"],
                world_size=engine.ranks.world,
                created_at=time.time(),
                libraries=library_versions(),
                canary_ids=canary_ids,
                canary_log_probs=canary_log_probs,
                canary_temperature=CANARY_TEMPERATURE,
            )

        if self.rank:
            write(self.store.partial(engine.version))
        else:
            self.store.publish(engine.version, write)
        engine.ranks.barrier()  # published: every rank sees it

    @property
    def _engine(self) -> Engine:
        assert self.engine is not None, "not loaded yet"
        return self.engine

    def _lock(self) -> int:
        descriptor = os.open(self.run_dir / "learner" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise MlrlError(f"{self.run_dir}: another learner trains this run; end it first") from None
                time.sleep(0.05)

    def _enter(self, state: str) -> None:
        self.state = state
        self._beat()

    def _beat(self) -> None:
        if self.rank:
            return
        version = self.engine.version if self.engine else None
        passes = self.engine.passes if self.engine else 0
        put(
            self.session.heartbeat,
            {"state": self.state, "version": version, "passes": passes, "pid": os.getpid(), "time": time.time()},
        )

    def _beat_forever(self) -> None:
        parent = os.getppid()
        beaten = 0.0
        while os.getppid() == parent:
            if time.monotonic() - beaten >= BEAT_S:
                beaten = time.monotonic()
                self._beat()
            time.sleep(0.5)
        os._exit(3)  # an inherited copy of the pipe may hide the parent's end from stdin


class Refused(MlrlError):
    """A request that can't be served; nothing was changed."""


def library_versions() -> dict[str, str]:
    """Versions of the libraries that decide an update's last digit."""
    import peft
    import torch
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main(argv: list[str] | None = None) -> int:
    """Exit status 2 for a user's mistake (its line is the last of the log), 1 for anything else."""
    parser = argparse.ArgumentParser(prog="mlrl_core.learner.worker")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--session", type=Path, required=True)
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    rank = int(os.environ.get("RANK", "0"))
    session = Session(arguments.session)
    session.enlist(rank)
    try:
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        Worker(arguments.run_dir, arguments.backbone, session, rank).run()
    except MlrlError as error:
        print(error, file=sys.stderr)
        if rank:
            time.sleep(FIRST_SPEAKS_S)
        else:
            put(session.mistake, {"message": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
