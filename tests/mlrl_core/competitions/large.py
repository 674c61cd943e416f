"""Files as large as real competitions hold, and one call of ours on them in a process of its own."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

ROWS = 400_000  # tabular-playground-series-dec-2021

GRADE = """
from mlrl_core.competitions.grading import grade_file
from mlrl_core.competitions.mlebench import PAPER12
from mlrl_core.competitions.mlebench.load import from_spec
spec = PAPER12["tabular-playground-series-dec-2021"]
competition = from_spec(spec, folder, folder / "answers.csv", folder / "sample.csv", None)
def work():
    return grade_file(competition, folder / "submission.csv").raw
"""
PREVIEW = """
from mlrl_core.competitions.preview import data_preview
def work():
    return data_preview(folder)
"""
_MEASURED = """
import sys, time
from pathlib import Path
folder = Path(sys.argv[1])
{code}
start = time.process_time()
result = work()
seconds = time.process_time() - start
# Not getrusage: its peak starts at the parent's.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(seconds, peak)
print(result)
"""


def measured(code: str, folder: Path) -> tuple[str, float, float]:
    """What ``work`` of this code returned, its CPU seconds (imports apart) and the process's peak in MB."""
    command = [sys.executable, "-c", _MEASURED.format(code=code), str(folder)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    first, _, result = out.partition("\n")
    seconds, kilobytes = map(float, first.split())
    return result.rstrip("\n"), seconds, kilobytes / 1024


def write_submission(folder: Path) -> None:
    """A submission of ``ROWS`` shuffled rows, a quarter of them wrong, with its answers and sample."""
    rng = random.Random(0)
    labels = [rng.randint(1, 7) for _ in range(ROWS)]
    lines = [f"{3_600_000 + i},{label}\n" for i, label in enumerate(labels)]
    (folder / "answers.csv").write_text("Id,Cover_Type\n" + "".join(lines))
    (folder / "sample.csv").write_text("Id,Cover_Type\n" + "".join(f"{3_600_000 + i},2\n" for i in range(ROWS)))
    wrong = [f"{3_600_000 + i},{label % 7 + 1}\n" for i, label in enumerate(labels[: ROWS // 4])]
    mixed = wrong + lines[ROWS // 4 :]
    rng.shuffle(mixed)
    (folder / "submission.csv").write_text("Id,Cover_Type\n" + "".join(mixed))


def write_table(folder: Path) -> int:
    """A table of 500 MB; returns its rows (a sparse repeat of one block would not do: all of it must look like one)."""
    block = b"".join(b"%d,%d,some words,0.25\n" % (i, i % 7) for i in range(40_000))
    with (folder / "large.csv").open("wb") as file:
        file.write(b"id,label,text,value\n")
        while file.tell() < 500 * 1024**2:
            file.write(block)
        return file.tell() // len(block) * 40_000
