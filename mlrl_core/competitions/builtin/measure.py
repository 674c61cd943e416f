"""Measure the baselines of the built-in competitions and write ``baselines.json``.

``python -m mlrl_core.competitions.builtin.measure [id ...]``. One thread; scores on each competition's own split,
CPU seconds of fit and prediction on the machine at hand (the best of three where they take under one).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mlrl_core.competitions.builtin.specs import BUILTIN, BuiltinSpec


def measure(spec: BuiltinSpec, names: list[str] | None = None, repeats: int = 3) -> dict[str, dict[str, float]]:
    """Test score and fit seconds of every baseline of ``spec`` (or of those named)."""
    import numpy as np
    import pandas as pd

    from mlrl_core.competitions.builtin import models
    from mlrl_core.competitions.builtin.write import write_builtin
    from mlrl_core.competitions.grading import grade
    from mlrl_core.competitions.toml_file import load_folder

    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_builtin(spec, Path(scratch))
        competition = load_folder(Path(scratch))
        train = pd.read_csv(competition.public_dir / "train.csv")
        test = pd.read_csv(competition.public_dir / "test.csv")
        features = [name for name in train.columns if name not in ("id", spec.target)]
        submission = Path(scratch, "submission.csv")
        for name, baseline in models.baselines(spec.metric).items():
            if names is not None and name not in names:
                continue
            predicted, seconds = _timed(partial(baseline, train[features], train[spec.target], test[features]), repeats)
            frame = pd.DataFrame(np.asarray(predicted).reshape(len(test), -1), columns=list(spec.rules.target_columns))
            frame.insert(0, "id", test["id"])
            frame.to_csv(submission, index=False)
            score = grade(competition, submission)
            if score.raw is None and name != "constant":
                raise RuntimeError(f"{spec.id}/{name}: {score.reason}")
            # A correlation with a constant is undefined: it counts as none.
            results[name] = {"score": round(score.raw or 0.0, 5), "fit_s": round(seconds, 3)}
    return results


def _timed(run: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
        if best > 1:
            break
    return result, best


def main(ids: list[str]) -> None:
    """Measure ``ids`` (all when empty) and update the file beside this module."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    path = Path(__file__).with_name("baselines.json")
    known = json.loads(path.read_text())
    for spec_id in ids or list(BUILTIN):
        known[spec_id] = measure(BUILTIN[spec_id])
        print(spec_id, json.dumps(known[spec_id]), flush=True)
    path.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
