"""Does the nano profile learn? Seeds 0, 1, 2, and a control whose trainer is switched off, against the bars.

    python -m tests.benchmarks.acceptance --out /tmp/acceptance [--seeds 0 1 2] [--set key=value ...]

Runs ``mlrl train`` as a user would, one run after another, and prints a markdown table: last three steps against
first three. Runs that are there already (same ``--out``) are gone on with or read, never repeated. Exit 0 when every
bar is met.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from mlrl_core.experience import ExperienceStore, RunDirectory
from mlrl_core.records import Experience
from mlrl_core.reporting.families import model_family
from mlrl_core.reporting.report import ENDS, standard_error

# The slow and good families of the competition `diamonds`: every ensemble of trees that the grammar knows.
SLOW_AND_GOOD = frozenset({"RandomForestRegressor", "ExtraTreesRegressor", "GradientBoostingRegressor"})
CONTROL = ("ppo.learning_rate=0", "ppo.critic_learning_rate=0")
LIMIT_S = 3600

VALID_SHARE_BAR = 0.85
STANDARD_ERRORS_BAR = 3.0
SLOW_SHARE_BAR = 0.20
WALL_BAR_S = 600
MEMORY_BAR_GB = 4.0


@dataclass(frozen=True)
class End:
    """First or last steps of a run: counts, shares in [0, 1], seconds."""

    programs: int
    valid: int
    valid_share: float
    reward: float
    reward_error: float
    slow_share_of_valid: float
    slow_share_of_all: float
    duration_s: float


@dataclass(frozen=True)
class Result:
    """One run. ``wall_s`` and ``memory_gb`` are of the command that was run here; None for a run that was there."""

    name: str
    first: End
    last: End
    best_score: float
    wall_s: float | None
    memory_gb: float | None

    @property
    def standard_errors(self) -> float:
        """Rise of the mean reward of valid programs, in standard errors of the difference."""
        error = math.hypot(self.first.reward_error, self.last.reward_error)
        return (self.last.reward - self.first.reward) / error if error else 0.0


def measure(run: RunDirectory, name: str, wall_s: float | None, memory_gb: float | None) -> Result:
    """The numbers of a finished run, from its experience store."""
    store = ExperienceStore(run)
    waves = store.waves()
    raw = [row.score.raw for wave in waves for row in store.read(wave) if row.score and row.score.raw is not None]
    return Result(name, _end(store, waves[:ENDS]), _end(store, waves[-ENDS:]), min(raw), wall_s, memory_gb)


def _end(store: ExperienceStore, waves: list[int]) -> End:
    rows = [row for wave in waves for row in store.read(wave) if row.reward is not None]
    valid = [row for row in rows if row.outcome == "graded"]
    rewards = [row.reward.total for row in valid if row.reward]
    durations = [row.execution.duration_s for row in valid if row.execution]

    def slow(several: list[Experience]) -> float:
        families = [model_family(row.solution.code) for row in several if row.solution.code]
        return sum(not SLOW_AND_GOOD.isdisjoint(f.split(" + ")) for f in families) / max(len(several), 1)

    return End(
        programs=len(rows),
        valid=len(valid),
        valid_share=len(valid) / len(rows),
        reward=sum(rewards) / max(len(rewards), 1),
        reward_error=standard_error(rewards) or 0.0,
        slow_share_of_valid=slow(valid),
        slow_share_of_all=slow(rows),
        duration_s=sum(durations) / max(len(durations), 1),
    )


def train(run: Path, seed: int, overrides: list[str]) -> tuple[float, float]:
    """Run the command to its end. Returns its seconds and the most memory (GB) that all its processes held at once."""
    where = ["--resume", str(run)] if (run / "config.toml").exists() else ["--run", str(run), "--seed", str(seed)]
    sets = [part for item in overrides for part in ("--set", item)] if "--run" in where else []
    profile = ["--profile", "nano"] if "--run" in where else []
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "mlrl_core.cli", "train", *profile, *where, *sets])
    peak, over = [0.0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(child.pid, peak, over))
    watcher.start()
    try:
        code = child.wait(LIMIT_S)
    finally:
        over.set()
        watcher.join()
        if child.poll() is None:
            child.terminate()
            child.wait(30)
    if code != 0:
        raise SystemExit(f"mlrl train ended with {code}: see {run}/train.log")
    return time.monotonic() - began, peak[0]


def _watch(pid: int, peak: list[float], over: threading.Event) -> None:
    while not over.wait(2):
        held = 0
        try:
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                try:
                    held += process.memory_full_info().pss  # shared pages count once
                except (psutil.Error, AttributeError):
                    continue
        except psutil.Error:
            continue
        peak[0] = max(peak[0], held / 1e9)


def bars(result: Result) -> dict[str, bool]:
    """Which bars a trained run meets."""
    first, last = result.first, result.last
    met = {
        f"valid share at the end at least {VALID_SHARE_BAR:.0%}": last.valid_share >= VALID_SHARE_BAR,
        f"reward of valid programs up by {STANDARD_ERRORS_BAR:g} standard errors": result.standard_errors
        >= STANDARD_ERRORS_BAR,
        "share of slow, good families up by 20 points": last.slow_share_of_valid - first.slow_share_of_valid
        >= SLOW_SHARE_BAR,
        "duration of valid programs up": last.duration_s > first.duration_s,
    }
    if result.wall_s is not None and result.memory_gb is not None:
        met[f"under {WALL_BAR_S} s"] = result.wall_s < WALL_BAR_S
        met[f"under {MEMORY_BAR_GB:g} GB"] = result.memory_gb < MEMORY_BAR_GB
    return met


def control_shows_nothing(result: Result) -> dict[str, bool]:
    """The control must not learn: its reward and families stay within noise."""
    first, last = result.first, result.last
    return {
        "valid share below the bar": last.valid_share < VALID_SHARE_BAR,
        "reward of valid programs within 3 standard errors": abs(result.standard_errors) < STANDARD_ERRORS_BAR,
        "share of slow, good families within 20 points": abs(last.slow_share_of_valid - first.slow_share_of_valid)
        < SLOW_SHARE_BAR,
    }


def table(results: list[Result]) -> str:
    """Markdown, one row per run, ``first -> last``."""
    head = "run | valid share | reward of valid | standard errors | slow, good of valid | of all | duration of valid"
    lines = [f"| {head} | best RMSLE | seconds | GB |", "|" + "---|" * 10]
    for r in results:
        a, b = r.first, r.last
        cells = [
            r.name,
            f"{a.valid_share:.0%} -> {b.valid_share:.0%}",
            f"{a.reward:.3f} ± {a.reward_error:.3f} -> {b.reward:.3f} ± {b.reward_error:.3f}",
            f"{r.standard_errors:+.1f}",
            f"{a.slow_share_of_valid:.0%} -> {b.slow_share_of_valid:.0%}",
            f"{a.slow_share_of_all:.0%} -> {b.slow_share_of_all:.0%}",
            f"{a.duration_s:.2f} s -> {b.duration_s:.2f} s",
            f"{r.best_score:.4f}",
            "-" if r.wall_s is None else f"{r.wall_s:.0f}",
            "-" if r.memory_gb is None else f"{r.memory_gb:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs and results.json")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--no-control", action="store_true")
    options = parser.parse_args()
    plan = [(f"seed {seed}", seed, list(options.overrides)) for seed in options.seeds]
    if not options.no_control:
        plan.append(("rate 0", 0, [*options.overrides, *CONTROL]))
    results: list[Result] = []
    for name, seed, overrides in plan:
        path = options.out / name.replace(" ", "-")
        wall_s, memory_gb = (None, None) if is_finished(path) else train(path, seed, overrides)
        results.append(measure(RunDirectory.open(path), name, wall_s, memory_gb))
        (options.out / "results.json").write_text(json.dumps([asdict(r) for r in results], indent=1))
        print("\n" + table(results) + "\n", flush=True)
    good = True
    for result in results:
        checks = control_shows_nothing(result) if result.name == "rate 0" else bars(result)
        for bar, met in checks.items():
            good &= met
            print(f"{'met   ' if met else 'MISSED'} {result.name}: {bar}")
    return 0 if good else 1


def is_finished(path: Path) -> bool:
    """Whether ``path`` holds a run that came to its end."""
    state = path / "state.json"
    return state.exists() and json.loads(state.read_text())["status"] == "finished"


if __name__ == "__main__":
    sys.exit(main())
