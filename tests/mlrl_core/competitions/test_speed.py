"""A submission of 400,000 rows (tabular-playground-series-dec-2021) is graded within its bars."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

CODE = """
import sys, time
from pathlib import Path
from mlrl_core.competitions.grading import grade_file
from mlrl_core.competitions.mlebench import PAPER12
from mlrl_core.competitions.mlebench.load import from_spec
folder = Path(sys.argv[1])
spec = PAPER12["tabular-playground-series-dec-2021"]
competition = from_spec(spec, folder, folder / "answers.csv", folder / "sample.csv", None)
start = time.process_time()
raw = grade_file(competition, folder / "submission.csv").raw
# Not getrusage: its peak starts at the parent's.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(raw, time.process_time() - start, peak)
"""


def test_400_000_rows_in_2_seconds_and_1_gigabyte(tmp_path: Path) -> None:
    rng = random.Random(0)
    labels = [rng.randint(1, 7) for _ in range(400_000)]
    lines = [f"{3_600_000 + i},{label}\n" for i, label in enumerate(labels)]
    (tmp_path / "answers.csv").write_text("Id,Cover_Type\n" + "".join(lines))
    (tmp_path / "sample.csv").write_text(
        "Id,Cover_Type\n" + "".join(f"{3_600_000 + i},2\n" for i in range(len(labels)))
    )
    wrong = [f"{3_600_000 + i},{label % 7 + 1}\n" for i, label in enumerate(labels[:100_000])]
    mixed = wrong + lines[100_000:]
    rng.shuffle(mixed)
    (tmp_path / "submission.csv").write_text("Id,Cover_Type\n" + "".join(mixed))
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    raw, seconds, kilobytes = map(float, done.stdout.split())
    assert raw == 0.75
    assert seconds < 2  # of the CPU, so that a busy machine does not decide
    assert kilobytes < 1024**2
