"""Graders that are not ours: a user's own ``grade.py``, and MLE-bench itself for its other competitions.

Both run in a child process of their own with a deadline and a memory limit; the submission is handed over as a
private copy, so that a link or a file that changes meanwhile can do nothing.

``grade.py`` defines ``grade(submission, answers) -> float``, both arguments paths. Any exception means an invalid
submission, unless the sample submission fails too.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlrl_core.competitions.competition import Competition
from mlrl_core.competitions.reasons import NO_SUBMISSION, InvalidSubmission
from mlrl_core.competitions.result import Grade
from mlrl_core.competitions.submission import read_submission, size_cap
from mlrl_core.errors import InfraError

MEMORY_LIMIT_BYTES = 8 * 1024**3
DETAIL_LIMIT = 300
REAP_S = 10.0  # from SIGKILL to the end of a child
MAX_REPLY_BYTES = 4 * 1024**2

# Both programs write one JSON document to the file descriptor in their first argument.
_LIMITS = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_LIMIT_BYTES}, {MEMORY_LIMIT_BYTES}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""
_GRADE_PY = (
    _LIMITS
    + """
import json, os, runpy, sys
fd, script, submission, answers = int(sys.argv[1]), *sys.argv[2:5]
os.set_inheritable(fd, False)
try:
    reply = {"score": float(runpy.run_path(script)["grade"](submission, answers))}
except Exception as error:
    reply = {"refused": f"{type(error).__name__}: {error}"}
os.write(fd, json.dumps(reply).encode())
"""
)
_MLEBENCH_GRADE = (
    _LIMITS
    + """
import json, os, sys
from pathlib import Path
fd, competition_id, data_dir, submission = int(sys.argv[1]), *sys.argv[2:5]
from mlebench.grade import grade_csv
from mlebench.registry import registry
competition = registry.set_data_dir(Path(data_dir)).get_competition(competition_id)
try:
    report = grade_csv(Path(submission), competition).to_dict()
    reply = {"score": report["score"]} if report["score"] is not None else {"refused": "its grader gave no score"}
except Exception as error:
    reply = {"refused": f"{type(error).__name__}: {error}"}
os.write(fd, json.dumps(reply).encode())
"""
)


class OutsideFailed(Exception):
    """The child crashed, ran out of memory or of time, or answered something else."""


def is_outside(competition: Competition) -> bool:
    """True when the competition brings its own grader."""
    return competition.grade_script is not None or competition.mlebench_python is not None


def grade_outside(competition: Competition, submission: Path, deadline_s: float) -> Grade:
    """The grade of ``submission`` by the competition's own grader.

    Raises InfraError when that grader fails on the sample submission as well.
    """
    try:
        return _grade(competition, submission, deadline_s)
    except OutsideFailed as failed:
        try:
            sample = _grade(competition, competition.sample_submission_path, deadline_s)
        except OutsideFailed as again:
            raise InfraError(f"the grader of '{competition.id}' fails on the sample submission: {again}") from failed
        if sample.raw is None:
            raise InfraError(
                f"the grader of '{competition.id}' refuses the sample submission: {sample.detail}"
            ) from None
        return Grade(None, True, "grader_failed", str(failed))


def _grade(competition: Competition, submission: Path, deadline_s: float) -> Grade:
    try:
        data = read_submission(submission, size_cap(competition.sample_submission_path))
    except InvalidSubmission as error:
        return Grade(None, error.reason not in NO_SUBMISSION, error.reason, error.detail)
    with tempfile.TemporaryDirectory(prefix="mlrl-grade-") as scratch:
        copy = Path(scratch, "submission.csv")
        copy.write_bytes(data)
        if competition.grade_script is not None:
            argv = [sys.executable, "-I", "-c", _GRADE_PY, "{fd}", str(competition.grade_script), str(copy)]
            argv.append(str(competition.answers_path))
        else:
            data_dir = competition.public_dir.parents[2]
            argv = [
                str(competition.mlebench_python),
                "-c",
                _MLEBENCH_GRADE,
                "{fd}",
                competition.id,
                str(data_dir),
                str(copy),
            ]
        reply = run_json(argv, deadline_s, Path(scratch))
    if "refused" in reply:
        return Grade(None, True, "custom_grader", str(reply["refused"])[:DETAIL_LIMIT])
    score = reply.get("score")
    if not isinstance(score, int | float):
        raise OutsideFailed("the grader gave no number")
    if score != score or score in (float("inf"), float("-inf")):
        return Grade(None, True, "non_finite_score", f"the score is {score}")
    return Grade(float(score), True)


def reap(killed: subprocess.Popen[bytes]) -> None:
    """Wait for a child that was sent SIGKILL, but not for ever: one that hangs in the kernel (a dead disk, a stopped
    network file system) dies when that lets it go, and is collected at the start of a later child."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        killed.wait(REAP_S)


def run_json(argv: Sequence[str], deadline_s: float, cwd: Path) -> Mapping[str, Any]:
    """Run a child that writes one JSON object to the descriptor that replaces ``{fd}`` in ``argv``.

    The child gets no standard input, a small environment, a memory limit and its own process group, which is killed
    at the end whatever happened. Raises OutsideFailed.
    """
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "HOME") if name in os.environ}
    receive, send = os.pipe()
    try:
        with tempfile.TemporaryFile() as output:
            try:
                child = subprocess.Popen(
                    [part if part != "{fd}" else str(send) for part in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=cwd,
                    env=environment,
                    pass_fds=(send,),
                    start_new_session=True,
                )
            except OSError as error:
                raise OutsideFailed(f"{argv[0]} can't be started ({error.strerror})") from None
            finally:
                os.close(send)
            try:
                data = _read_until_closed(receive, child, time.monotonic() + deadline_s)
            except TimeoutError:
                raise OutsideFailed(f"it took more than {deadline_s:g} s") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                reap(child)
            if not data:
                output.seek(max(0, output.tell() - DETAIL_LIMIT))
                tail = output.read().decode(errors="replace").strip().splitlines()
                raise OutsideFailed(f"it ended with code {child.returncode}: {tail[-1] if tail else 'no output'}")
    finally:
        os.close(receive)
    try:
        reply = json.loads(data)
    except ValueError:
        raise OutsideFailed("it did not answer in JSON") from None
    if not isinstance(reply, dict):
        raise OutsideFailed("it did not answer with an object")
    return reply


def _read_until_closed(receive: int, child: subprocess.Popen[bytes], deadline: float) -> bytes:
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(receive, selectors.EVENT_READ)
        while time.monotonic() < deadline and len(data) <= MAX_REPLY_BYTES:
            # A grandchild may hold the pipe open after the child has ended: the exit counts, not the pipe.
            if selector.select(min(0.2, max(0.0, deadline - time.monotonic()))):
                chunk = os.read(receive, 65536)
                if not chunk:
                    return data
                data += chunk
            elif child.poll() is not None:
                return data
    raise TimeoutError
