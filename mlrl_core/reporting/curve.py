"""The learning curve of a run as a PNG, from its experience store alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.experience.files import publish
from mlrl_core.experience.statistics import StepStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAMILIES_SHOWN = 6


def draw_learning_curve(
    steps: Sequence[StepStatistics], families: Sequence[dict[str, float]], title: str, path: Path
) -> Path:
    """Four panels over steps: mean reward, reward of valid programs (with standard error) and best score; valid
    share; families of the valid programs; mean duration of valid programs. ``families`` holds one dictionary (family
    to share) per step. Publishes ``path``."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(title)
    _rewards(axes[0][0], steps)
    _valid(axes[0][1], steps)
    _families(axes[1][0], steps, families)
    _durations(axes[1][1], steps)
    for axis in axes.flat:
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        axis.xaxis.get_major_locator().set_params(integer=True)
    return publish(path, lambda partial: figure.savefig(partial, format="png", dpi=120))


def _rewards(axis: Axes, steps: Sequence[StepStatistics]) -> None:
    valid = [s for s in steps if s.valid_reward_mean is not None]
    axis.errorbar(
        [s.step for s in valid],
        [s.valid_reward_mean for s in valid],  # type: ignore[arg-type]
        yerr=[s.valid_reward_sem or 0.0 for s in valid],
        marker="o",
        capsize=3,
        color="tab:blue",
        label="valid programs (± standard error)",
    )
    axis.set_ylabel("mean reward of valid programs", color="tab:blue")
    everyone = axis.twinx()
    known = [(s.step, s.reward_mean) for s in steps if s.reward_mean is not None]
    everyone.plot(*_columns(known), color="tab:gray", linestyle="--", label="all")
    everyone.set_ylabel("mean reward of all (dashed)", color="tab:gray")
    axis.set_title("reward")


def _valid(axis: Axes, steps: Sequence[StepStatistics]) -> None:
    axis.plot([s.step for s in steps], [s.valid_share for s in steps], marker="o", color="tab:green")
    axis.set_ylim(0, 1.02)
    axis.set_title("share of programs with a valid submission")


def _families(axis: Axes, steps: Sequence[StepStatistics], families: Sequence[dict[str, float]]) -> None:
    totals: dict[str, float] = {}
    for shares in families:
        for family, share in shares.items():
            totals[family] = totals.get(family, 0.0) + share
    shown = sorted(totals, key=lambda family: -totals[family])[:_FAMILIES_SHOWN]
    lines = {family: [shares.get(family, 0.0) for shares in families] for family in shown}
    lines["other"] = [
        max(sum(shares.values()) - sum(lines[family][i] for family in shown), 0.0) for i, shares in enumerate(families)
    ]
    axis.stackplot([s.step for s in steps], list(lines.values()), labels=list(lines), alpha=0.8)
    axis.set_ylim(0, 1.02)
    axis.legend(fontsize=7, loc="lower left")
    axis.set_title("models of the valid programs")


def _durations(axis: Axes, steps: Sequence[StepStatistics]) -> None:
    valid = [(s.step, s.valid_duration_mean_s) for s in steps if s.valid_duration_mean_s is not None]
    axis.plot(*_columns(valid), marker="o", color="tab:red")
    axis.set_ylabel("mean duration of valid programs, s", color="tab:red")
    best = [(s.step, s.best.raw) for s in steps if s.best is not None]
    right = axis.twinx()
    right.plot(*_columns(best), color="tab:purple", linestyle="--")
    right.set_ylabel("best score so far (dashed)", color="tab:purple")
    axis.set_title("duration and best score")


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
