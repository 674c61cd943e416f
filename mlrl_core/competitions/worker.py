"""Grading in a child process with a deadline.

A submission is written by a program that may be hostile, so it is parsed by a process that can be lost: a resident
worker, started at the first grade and again after a crash or a timeout (starting it costs about 0.3 s, a grade some
milliseconds). Workers run one request at a time; a pool holds as many as there are concurrent callers.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.grading import grade_file, to_score
from mlrl_core.competitions.outside import is_outside, reap
from mlrl_core.competitions.parts import Part
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.records import Score

MEMORY_LIMIT_BYTES = 4 * 1024**3
SAMPLE_DEADLINE_S = 60.0
_LENGTH = struct.Struct("<Q")


class WorkerLost(Exception):
    """The worker died or did not answer in time; it has been ended."""


def grade_in_child(competition: Competition, submission: Path, deadline_s: float = 300, part: Part = "all") -> Score:
    """The score of ``submission`` from a child process; ``part`` as in ``grading.grade``.

    When the child crashes, runs out of memory or exceeds ``deadline_s``, the sample submission is graded the same way:
    if that works the fault is the submission's (an invalid Score, reason ``grader_failed``), else ours (InfraError).
    Raises MlrlError when the competition's answers are broken.
    """
    if is_outside(competition):  # that grader is a child with a deadline already
        return to_score(competition, grade_file(competition, submission, part, deadline_s))
    try:
        score = _pool.run(competition, submission, part, deadline_s)
    except WorkerLost as lost:
        try:
            _pool.run(competition, competition.sample_submission_path, "all", SAMPLE_DEADLINE_S)
        except WorkerLost as again:
            raise InfraError(f"the grader of '{competition.id}' fails on the sample submission too: {again}") from lost
        return Score(None, False, competition.is_lower_better, reason="grader_failed", warnings=(str(lost),))
    if score.reason == "bad_answers":
        raise MlrlError(
            f"competition '{competition.id}' can't be graded, its answers do not fit its metric: run "
            f"'mlrl competitions check {competition.id}'"
        )
    return score


def close_workers() -> None:
    """End every idle worker. Running ones end with their request or their deadline."""
    _pool.close()


class _Worker:
    """One resident child. Requests and replies are length-prefixed pickles over pipes of our own making."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        code = f"import sys; sys.path.append({root!r}); from mlrl_core.competitions.worker import serve; serve()"
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the caller; the child ends when its standard input closes
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, competition: Competition, submission: Path, part: Part, deadline_s: float) -> Score:
        deadline = time.monotonic() + deadline_s
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            _send(stdin, (competition, submission, part, deadline_s))
            (length,) = _LENGTH.unpack(self._read(stdout, _LENGTH.size, deadline))
            reply = pickle.loads(self._read(stdout, length, deadline))
        except (OSError, EOFError) as error:
            self.end()
            raise WorkerLost(f"grading process ended ({self._process.returncode}): {error}") from None
        except TimeoutError:
            self.end()
            raise WorkerLost(f"grading took more than {deadline_s:g} s") from None
        except BaseException:
            self.end()  # an interrupt in mid-reply leaves the pipe out of step
            raise
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def end(self) -> None:
        if self.alive:
            self._process.kill()
        reap(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent bytes to a dead child
                    pipe.close()

    @staticmethod
    def _read(stdout: IO[bytes], size: int, deadline: float) -> bytes:
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                chunk = os.read(stdout.fileno(), size - len(data))
                if not chunk:
                    raise EOFError("no reply")
                data += chunk
        return data


class _Pool:
    """Idle workers of this process. A forked child starts with none of its parent's."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def run(self, competition: Competition, submission: Path, part: Part, deadline_s: float) -> Score:
        worker = self._take()
        score = worker.ask(competition, submission.absolute(), part, deadline_s)
        with self._lock:
            self._idle.append(worker)
        return score

    def close(self) -> None:
        with self._lock:
            idle, self._idle = (self._idle, []) if self._owner == os.getpid() else ([], [])
        for worker in idle:
            worker.end()

    def _take(self) -> _Worker:
        with self._lock:
            if self._owner != os.getpid():
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.end()
        return _Worker()


_pool = _Pool()


def serve() -> None:
    """Main loop of the child: grade until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get into the replies
    from mlrl_core.competitions.grading import grade

    while header := sys.stdin.buffer.read(_LENGTH.size):
        competition, submission, part, deadline_s = pickle.loads(sys.stdin.buffer.read(_LENGTH.unpack(header)[0]))
        signal.alarm(int(deadline_s) + 5)  # ends this process should the caller be gone before its deadline
        try:
            reply: Score | BaseException = grade(competition, submission, part)
        except (MlrlError, InfraError) as error:
            reply = error
        signal.alarm(0)
        _send(replies, reply)


def _send(stream: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()
