"""The programs of tests/cases/programs and what their first line promises."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from mlrl_core.records import Execution
from mlrl_core.sandbox.output import capture_text

PROGRAMS = Path(__file__).parents[2] / "cases" / "programs"
KEYS = ("status", "code", "signal", "oom_seen", "output_truncated", "idle_suspect", "submission", "wall", "result")
SHORT_LIMIT_S = 2.0
GUARD = 'os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap")'


@dataclass(frozen=True)
class Program:
    """One program: its promises (key -> text, ``a|b`` means either) and whether it refuses to run uncontained."""

    path: Path
    promises: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def source(self) -> str:
        return self.path.read_text()

    @property
    def guarded(self) -> bool:
        return GUARD in self.source


def promises_of(source: str) -> dict[str, str]:
    """The ``key=value`` parts of a first line ``# expect: ...``; empty where there is none."""
    first = source.partition("\n")[0]
    if not first.startswith("# expect: "):
        return {}
    parts = (part.partition("=") for part in first.removeprefix("# expect: ").split("; "))
    return {key: value for key, equals, value in parts if equals and key in KEYS}


def read_program(path: Path) -> Program:
    promises = promises_of(path.read_text())
    assert promises, f"{path.name}: no `# expect:` line"
    return Program(path, promises)


def programs(folder: Path = PROGRAMS) -> list[Program]:
    return [read_program(path) for path in sorted(folder.glob("*.py"))]


def result_line(execution: Execution) -> str:
    """What follows the last ``RESULT:`` at the beginning of a line of stdout."""
    lines = [line for line in capture_text(execution.stdout).split("\n") if line.startswith("RESULT:")]
    return lines[-1].removeprefix("RESULT:").strip() if lines else ""


def observed(execution: Execution) -> dict[str, str]:
    """The execution in the words of the promises."""
    submission = execution.submission_state
    if submission == "refused":
        submission = f"refused:{execution.submission_reason}"  # type: ignore[assignment]
    return {
        "status": execution.status,
        "code": str(execution.exit_code),
        "signal": "none" if execution.signal is None else str(execution.signal),
        "oom_seen": str(execution.oom_seen).lower(),
        "output_truncated": str(execution.output_truncated).lower(),
        "idle_suspect": str(execution.idle_suspect).lower(),
        "submission": submission,
        "result": result_line(execution),
        "wall": f"{execution.duration_s:.3f}",
    }


def limit_of(program: Program, usual_s: float) -> float:
    """The time limit to run it with: short for those that may wait for it (stretched, they would outlast it)."""
    may_wait = program.promises.get("wall") == "limit" or "timeout" in program.promises["status"]
    return SHORT_LIMIT_S if may_wait else usual_s


def stretch() -> int:
    """How much longer everything takes on this machine now: the work per core, as 1, 2, 4 or 8.

    Limits and upper bounds of times are multiplied by it; lower bounds and `wall=limit` stay exact.
    """
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return next(factor for factor in (1, 2, 4, 8) if busy <= 1.25 * factor or factor == 8)


def broken_promises(program: Program, execution: Execution, limit_s: float, stretched: int = 1) -> list[str]:
    """One line for each promise that the execution breaks."""
    found, broken = observed(execution), []
    for key, promise in program.promises.items():
        value = found[key]
        if key == "wall" and promise == "limit":
            kept = execution.duration_s == limit_s
        elif key == "wall":
            low, high = (float(bound) for bound in promise.split(".."))
            kept = low <= execution.duration_s <= high * stretched
        elif key == "idle_suspect" and promise == "false" and stretched > 1:
            kept = True  # the program hardly got the processor
        elif key == "result":
            kept = any(value.startswith(choice) for choice in promise.split("|"))
        else:
            kept = value in promise.split("|")
        if not kept:
            broken.append(f"{key}: promised {promise}, was {value}")
    return broken
