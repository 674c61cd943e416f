"""``LearnerClient``: the learner's process as an object with three verbs, and an end to every wait."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

from mlrl_core.config import RunConfig, dump_toml
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.experience.files import publish_text
from mlrl_core.learner.session import Session, get, put

POLL_S = 0.01
HANG_S = 60.0  # a worker whose heartbeat is older than this hangs
END_S = 5.0
RESTARTS = 3
RESTARTS_WITHIN_S = 3600.0
# glibc keeps freed tensors below a moving threshold (up to 32 MiB) in a heap that fragments: an update of a 135M model
# held four times what it needed. A firm threshold gives every larger tensor back when it is freed.
FIRM_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(8 << 20), "MALLOC_TRIM_THRESHOLD_": str(8 << 20)}


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """A published version. ``timings`` are seconds: read, train, publish, total (in the worker) and call (here)."""

    version: int
    version_dir: Path
    metrics: dict[str, float]
    timings: dict[str, float]


class LearnerClient:
    """Owns the learner of one run. Use it as a context manager: leaving it ends the process.

    A worker that dies or hangs is an InfraError with the last lines of its log. The next ``update`` starts a new one
    from the last published version; repeating an update is safe, a batch is applied once. Methods may be called from
    any thread; ``kill`` makes a waiting ``update`` of another thread raise InfraError at once.
    """

    def __init__(self, run_dir: Path, config: RunConfig, backbone_dir: Path) -> None:
        self.run_dir, self.config, self.backbone_dir = Path(run_dir).absolute(), config, Path(backbone_dir).absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None
        self._requests = 0
        self._updates = 0  # of the live worker
        self._starts: list[float] = []  # of workers that were not asked to end
        self._lock = threading.RLock()

    def __enter__(self) -> LearnerClient:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """Process id of a live worker."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def processes(self) -> list[psutil.Process]:
        """The live processes that train, in the order of their ranks' files."""
        return self._session.processes() if self._session else []

    def start(self) -> None:
        """Start the worker and wait until it is ready; nothing to do when it is.

        Publishes version 0 of a new run. Raises MlrlError for a mistake in the configuration, the backbone or the run
        directory, and when the worker died too often; InfraError when it dies or isn't ready in time.
        """
        with self._lock:
            if self.pid is not None:
                return
            self._count_start()
            self._session = session = Session.create(self.run_dir)
            self._requests = self._updates = 0
            publish_text(session.config, dump_toml(self.config))
            with session.log.open("wb") as log:
                self._process = self._spawn(session, log)
            self._wait(session.ready, self.config.learner.start_deadline_s, "to be ready")

    def update(self, batch_id: int | str, batch_path: Path, digest: str, parent_version: int) -> UpdateResult:
        """Make and publish the next version from a batch file; the same call again returns the same version.

        Raises MlrlError when the batch or the version is wrong or training has failed for good, InfraError when the
        worker died or took longer than ``learner.update_deadline_s``: repeat the call then.
        """
        began = time.monotonic()
        with self._lock:
            self.start()
            session = self._current()
            self._requests += 1
            request = {
                "batch_id": str(batch_id),
                "batch_path": str(Path(batch_path).absolute()),
                "digest": digest,
                "parent_version": parent_version,
            }
            put(session.request(self._requests), request)
            limit_s = self.config.learner.update_deadline_s
            answer = self._wait(session.answer(self._requests), limit_s, f"to answer update {batch_id}")
            self._updates += 1
            if self._updates >= self.config.learner.max_updates_per_process:
                self._recycle()
        if answer["status"] == "refused":
            raise MlrlError(answer["message"])
        if answer["status"] != "ok":
            self.kill()
        if answer["status"] == "mistake":
            raise MlrlError(answer["message"])
        if answer["status"] == "fault":
            raise InfraError(f"the learner failed in update {batch_id}: {answer['message']} (log: {session.log})")
        timings = answer["timings"] | {"call_s": time.monotonic() - began}
        return UpdateResult(answer["version"], Path(answer["version_dir"]), answer["metrics"], timings)

    def status(self) -> dict[str, Any]:
        """State (``stopped | loading | idle | updating | publishing``), version, passes made, pid, age of the
        heartbeat. Never waits."""
        beat = get(self._session.heartbeat) if self._session else None
        if self.pid is None or beat is None:
            return {"state": "stopped" if self.pid is None else "loading", "pid": self.pid}
        return beat | {"age_s": time.time() - beat["time"]}

    def shutdown(self) -> None:
        """End the worker; all that it has published stays. Safe to repeat."""
        self.kill()

    def _recycle(self) -> None:
        """End a worker that has answered and published: the next one starts when it is needed, from what is published.

        Memory that a process has lost comes back in no other way. An end that was asked for is no death.
        """
        self.kill()
        self._starts.pop()

    def kill(self) -> None:
        """End the worker now, from any thread: end-of-file on its stdin, then SIGKILL. Nothing published is lost."""
        process, session = self._process, self._session
        if process is None or session is None:
            return
        if process.stdin:
            with contextlib.suppress(OSError):  # it is dead already
                process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
        # Ranks are torchrun's children: they notice that their parent is gone, and are killed if they don't.
        _, left = psutil.wait_procs(session.processes(), timeout=END_S)
        for rank in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()

    def _spawn(self, session: Session, log: IO[bytes]) -> subprocess.Popen[bytes]:
        learner = self.config.learner
        threads = learner.threads or max(1, len(os.sched_getaffinity(0)) // learner.ranks)
        # Waiting threads sleep: spinning ones slow everything down tenfold when the machine has other work.
        environment = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}
        environment |= FIRM_MALLOC
        return subprocess.Popen(
            self._command(session),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C in the terminal is ours to handle
        )

    def _command(self, session: Session) -> list[str]:
        where = ["--run-dir", str(self.run_dir), "--backbone", str(self.backbone_dir), "--session", str(session.folder)]
        worker = ["-m", "mlrl_core.learner.worker", *where]
        ranks = self.config.learner.ranks
        if ranks == 1:
            return [sys.executable, *worker]
        group = ["--standalone", f"--nproc-per-node={ranks}", "--max-restarts=0"]
        return [sys.executable, "-m", "torch.distributed.run", *group, *worker]

    def _count_start(self) -> None:
        now = time.monotonic()
        self._starts = [t for t in self._starts if now - t < RESTARTS_WITHIN_S]
        if len(self._starts) > RESTARTS:
            words = self._session.last_words(100) if self._session else ""
            raise MlrlError(f"the learner died {len(self._starts)} times within an hour, its last words:\n{words}")
        self._starts.append(now)

    def _wait(self, path: Path, limit_s: float, purpose: str) -> dict[str, Any]:
        """What appears at ``path``. The worker is ended if it takes too long, hangs, or we are interrupted."""
        process, session = self._process, self._current()
        assert process is not None
        deadline = time.monotonic() + limit_s
        try:
            while True:
                ended = process.poll() is not None  # looked at first: it may have answered just before it ended
                content = get(path)
                if content is not None:
                    return content
                if ended:
                    raise self._obituary(process, session, purpose)
                if time.monotonic() > deadline:
                    raise InfraError(f"the learner took longer than {limit_s:g} s {purpose} (log: {session.log})")
                self._check_heartbeat(session)
                time.sleep(POLL_S)
        except BaseException:
            self.kill()
            raise

    def _check_heartbeat(self, session: Session) -> None:
        try:
            age_s = time.time() - session.heartbeat.stat().st_mtime
        except FileNotFoundError:
            return  # still importing: the start has a deadline of its own
        if age_s > HANG_S:
            raise InfraError(f"the learner hangs: no sign of life for {age_s:.0f} s (log: {session.log})")

    def _obituary(self, process: subprocess.Popen[bytes], session: Session, purpose: str) -> Exception:
        mistake = get(session.mistake)
        if mistake is not None:
            return MlrlError(mistake["message"])
        return InfraError(
            f"the learner ended with status {process.returncode} while it had {purpose}; log {session.log}, "
            f"last lines:\n{session.last_words()}"
        )

    def _current(self) -> Session:
        assert self._session is not None, "start() first"
        return self._session
