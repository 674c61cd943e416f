"""Where a frozen model puts milestones: ``python -m tests.benchmarks.placement [--rewrites N] [--out FILE]``.

``lm_lines`` over the two hundred varied programs of the tests, ``lm_rewrite`` over the first N of them (a rewrite takes
as long as writing the program). Counted is what may never happen (a program that is another once the inserted lines are
out, one that does not compile, one that prints or submits something else) and how often the model failed. Timed is
everything around the model's calls, apart from them. Then the places of the forty programs with a person's marks: by
the model, by a model that follows the marks (what the interface can express at most) and by rules.

The model is SmolLM2-135M-Instruct unless told. Prints JSON.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mlrl_core.cache import cache_dir
from mlrl_core.generation.frozen import TransformersModel
from mlrl_core.instrumentation import MILESTONES, FrozenModel, FrozenModelError, Inserter, Place, instrument, new_nonce
from mlrl_core.instrumentation.lm_lines import places_by_lines
from mlrl_core.instrumentation.lm_rewrite import places_by_rewriting
from mlrl_core.instrumentation.placement import place_milestones
from mlrl_core.models.smollm2 import prepare_smollm2
from mlrl_core.records import InstrumentedProgram
from mlrl_core.sandbox.output import MilestoneFilter
from tests.mlrl_core.instrumentation.marked import Marked, marked_programs, placed_right, settled_places
from tests.mlrl_core.instrumentation.scripted import MarkedLines
from tests.mlrl_core.instrumentation.varied import run_program, varied_programs, write_inputs

_MAX_TOKENS = 2500


@dataclass
class Timed:
    """A model that notes how long its calls take."""

    model: FrozenModel
    calls_s: list[float] = field(default_factory=list)

    def choose(self, instruction: str, start: str, choices: Sequence[str]) -> int:
        return self._timed(lambda: self.model.choose(instruction, start, choices))

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        return self._timed(lambda: self.model.complete(instruction, start, max_tokens))

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return call()
        finally:
            self.calls_s.append(time.perf_counter() - began)


def is_same(code: str, program: InstrumentedProgram) -> bool:
    """Whether the lines that the map calls the program's own are the program, and all of it compiles."""
    kept = [line for line, number in zip(program.source.split("\n"), program.line_map, strict=False) if number]
    compile(program.source, "solution.py", "exec")
    return ast.dump(ast.parse("\n".join(kept))) == ast.dump(ast.parse(code))


def kept_output(program: InstrumentedProgram, folder: Path) -> tuple[str, bytes]:
    """What the sandbox keeps of a program's output, and its submission."""
    printed, submission = run_program(program.source, folder)
    milestones = MilestoneFilter(program.nonce, program.milestones)
    return (milestones.feed(printed.encode()) + milestones.finish()).decode(), submission


def over_programs(inserter: Inserter, model: FrozenModel, programs: Sequence[str], folder: Path) -> dict[str, Any]:
    """What the inserter does to the programs, and how long it takes in milliseconds a program."""
    changed: list[int] = []
    reasons: list[str] = []
    beyond: list[float] = []
    calls: list[float] = []
    placed = 0
    for number, code in enumerate(programs):
        timed = Timed(model)
        began = time.perf_counter()
        program = instrument(code, inserter, new_nonce(), timed, on_failure="original", max_tokens=_MAX_TOKENS)
        took = time.perf_counter() - began
        calls.append(1000 * sum(timed.calls_s))
        beyond.append(1000 * took - calls[-1])
        reasons += [program.fallback_reason] if program.fallback_reason else []
        if not is_same(code, program) or kept_output(program, folder) != run_program(code, folder):
            changed.append(number)
        placed += len(program.milestones)
        _tell(f"{inserter}: {number + 1} of {len(programs)}")
    return {
        "programs": len(programs),
        "changed": changed,
        "fallback_frac": round(len(reasons) / len(programs), 4),
        "fallback_reasons": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "milestones_placed_mean": round(placed / len(programs), 2),
        "beyond_model_ms": _spread(beyond),
        "model_ms": _spread(calls),
    }


def accuracy(place: Callable[[Marked, ast.Module], Mapping[str, Place]], programs: Sequence[Marked]) -> dict[str, Any]:
    """How many of a person's marks are placed right, by milestone; ``extra``: placed where the person saw none."""
    right = dict.fromkeys(MILESTONES, 0)
    marks = dict.fromkeys(MILESTONES, 0)
    extra = failed = 0
    for program in programs:
        try:
            places = settled_places(program, partial(place, program))
        except FrozenModelError:
            places, failed = {}, failed + 1
        extra += len(set(places) - set(program.marks))
        found = placed_right(program, places)
        for label in program.marks:
            marks[label] += 1
            right[label] += label in found
    total = sum(marks.values())
    return {
        "right": sum(right.values()),
        "marks": total,
        "share": round(sum(right.values()) / total, 3),
        "extra": extra,
        "failed": failed,
        "by_milestone": {label: f"{right[label]} of {marks[label]}" for label in MILESTONES},
    }


def by_lines(model: FrozenModel, program: Marked, tree: ast.Module) -> Mapping[str, Place]:
    return places_by_lines(program.code, tree, model)


def by_rewriting(model: FrozenModel, program: Marked, tree: ast.Module) -> Mapping[str, Place]:
    return places_by_rewriting(program.code, tree, model, _MAX_TOKENS)


def by_marks(program: Marked, tree: ast.Module) -> Mapping[str, Place]:
    return places_by_lines(program.code, tree, MarkedLines(program.code, program.marks))


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 2),
        "p95": round(ordered[int(0.95 * (len(ordered) - 1))], 2),
        "max": round(ordered[-1], 2),
    }


def _tell(text: str) -> None:
    print(f"\r{text} ", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a folder of transformers")
    parser.add_argument("--programs", type=int, default=200, help="how many programs for lm_lines")
    parser.add_argument("--rewrites", type=int, default=12, help="how many programs for lm_rewrite")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = arguments.model or prepare_smollm2(cache_dir() / "models", lambda text: print(text, file=sys.stderr))
    model = TransformersModel(folder, "float32")
    programs, marked = varied_programs(), marked_programs()
    rewritten = marked[: arguments.rewrites]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        inputs = Path(place)
        write_inputs(inputs)
        result = {
            "model": folder.name,
            "lm_lines": over_programs("lm_lines", model, programs[: arguments.programs], inputs),
            "lm_rewrite": over_programs("lm_rewrite", model, programs[: arguments.rewrites], inputs),
            "accuracy": {
                "lm_lines": accuracy(partial(by_lines, model), marked),
                "lm_rewrite": accuracy(partial(by_rewriting, model), rewritten),
                "scripted": accuracy(by_marks, marked),
                "ast": accuracy(lambda program, tree: place_milestones(tree), marked),
            },
        }
    result |= {"wall_s": round(time.monotonic() - began), "load": [round(each, 1) for each in os.getloadavg()]}
    text = json.dumps(result, indent=2)
    if arguments.out:
        arguments.out.write_text(f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
