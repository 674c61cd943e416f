"""CPU seconds and peak memory of grading 400,000 rows and of previewing 500 MB, medians of five.

python -m tests.benchmarks.large_files
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from tests.mlrl_core.competitions.large import GRADE, PREVIEW, measured, write_submission, write_table


def main() -> None:
    for name, code, write in (("grading", GRADE, write_submission), ("preview", PREVIEW, write_table)):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            found = [measured(code, Path(folder))[1:] for _ in range(5)]
        seconds, peaks = zip(*found, strict=True)
        print(f"{name}: {statistics.median(seconds):.2f} CPU-s, {max(peaks):.0f} MB")


if __name__ == "__main__":
    main()
