"""Measure the tables of docs/duration.md: ``python -m tests.benchmarks.duration --picture docs/duration.png``.

Prints two Markdown tables. The full run takes about a quarter of an hour of one core, nearly all of it the windows.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from mlrl_core.experience.bandit import train_bandit
from tests.mlrl_core.experience.duration_cells import CELLS, REGIMES, WEIGHTINGS, arms, slow_shares


def share_rows() -> list[tuple[str, list[float]]]:
    """Name of each regime and the slow share under each weighting."""
    return [(regime.name, slow_shares(regime)) for regime in REGIMES]


def print_shares(rows: list[tuple[str, list[float]]]) -> None:
    print("| regime | " + " | ".join(WEIGHTINGS) + " |\n|---|" + "---|" * len(WEIGHTINGS))
    for name, shares in rows:
        print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")


def print_wins(seeds: int, window_seeds: int) -> None:
    print("\n| regime | seeds | " + " | ".join(WEIGHTINGS) + " |\n|---|---|" + "---|" * len(WEIGHTINGS))
    for cell in CELLS:
        count = window_seeds if cell.name.startswith("window") else seeds
        texts = []
        for weighting in WEIGHTINGS:
            if cell.wins[weighting] is None:
                texts.append("-")
                continue
            found = []
            for best, index in (("slow", 2), ("fast", 1)):
                world = arms(best, cell.slow_s)
                ends = (train_bandit(world, cell.policy, cell.site, weighting, seed) for seed in range(count))
                found.append(sum(end[index] > 0.5 for end in ends))
            texts.append(f"slow {found[0]}, fast {found[1]}")
        print(f"| {cell.name} | {count} | " + " | ".join(texts) + " |", flush=True)


def draw(rows: list[tuple[str, list[float]]], path: Path) -> None:
    """Bars of the slow share per regime and weighting, with the true value."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 8))
    height = 0.8 / len(WEIGHTINGS)
    for k, weighting in enumerate(WEIGHTINGS):
        values = [0 if math.isnan(shares[k]) else shares[k] for _, shares in rows]
        axes.barh([i + (k - 1) * height for i in range(len(rows))], values, height, label=weighting)
    axes.axvline(0.5, color="black", linewidth=1, linestyle="--", label="what the policy chose")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("share of the slow programs among admitted ones, after weighting")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=len(WEIGHTINGS) + 1, fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--window-seeds", type=int, default=20)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    rows = share_rows()
    print_shares(rows)
    if arguments.picture:
        draw(rows, arguments.picture)
    print_wins(arguments.seeds, arguments.window_seeds)


if __name__ == "__main__":
    main()
