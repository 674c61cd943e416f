"""Where a frozen model puts milestones: ``python -m tests.benchmarks.placement [--rewrites N] [--out FILE]``.

``lm_lines`` over the two hundred varied programs of the tests, ``lm_rewrite`` over the first N of them (a rewrite takes
as long as writing the program). Counted is what may never happen (a program that is another once the inserted lines are
out, one that does not compile, one that prints or submits something else) and how often the model failed. Timed is
everything around the model's calls, apart from them, in processor time: other work on the machine changes little of it.
Before that the places of the forty programs with a person's marks: by the model, by a model that follows the marks
(what the interface can express at most) and by rules.

The model is SmolLM2-135M-Instruct unless told. Prints JSON, and writes it to FILE after every part.
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlrl_core.cache import cache_dir
from mlrl_core.generation.frozen import TransformersModel
from mlrl_core.instrumentation import MILESTONES, FrozenModel, FrozenModelError, Inserter, Place, instrument, new_nonce
from mlrl_core.instrumentation.frozen import Question
from mlrl_core.instrumentation.lm_lines import places_by_lines
from mlrl_core.instrumentation.lm_rewrite import places_by_rewriting
from mlrl_core.instrumentation.placement import place_milestones
from mlrl_core.models.smollm2 import prepare_smollm2
from mlrl_core.records import InstrumentedProgram
from mlrl_core.sandbox.output import MilestoneFilter
from tests.mlrl_core.instrumentation.marked import Marked, marked_programs, placed_right, settled_places
from tests.mlrl_core.instrumentation.scripted import MarkedLines
from tests.mlrl_core.instrumentation.varied import run_program, varied_programs, write_inputs

_MAX_TOKENS = 512  # more than any of these programs has


@dataclass
class Timed:
    """A model that notes what its calls take: wall seconds, processor seconds of all threads and of the caller's."""

    model: FrozenModel
    wall_s: float = 0.0
    cpu_s: float = 0.0
    own_cpu_s: float = 0.0

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        return self._timed(lambda: self.model.choose(instruction, questions))

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        return self._timed(lambda: self.model.complete(instruction, start, max_tokens))

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.perf_counter(), time.process_time(), time.thread_time()
        try:
            return call()
        finally:
            self.wall_s += time.perf_counter() - began[0]
            self.cpu_s += time.process_time() - began[1]
            self.own_cpu_s += time.thread_time() - began[2]


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
    """What the inserter does to the programs, and what it takes a program."""
    changed: list[int] = []
    reasons: list[str] = []
    beyond: list[float] = []
    calls: list[Timed] = []
    placed = 0
    for number, code in enumerate(programs):
        timed = Timed(model)
        began = time.thread_time()
        program = instrument(code, inserter, new_nonce(), timed, on_failure="original", max_tokens=_MAX_TOKENS)
        beyond.append(1000 * (time.thread_time() - began - timed.own_cpu_s))
        calls.append(timed)
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
        "beyond_model_cpu_ms": _spread(beyond),
        "model_cpu_s": _spread([each.cpu_s for each in calls]),
        "model_wall_s": _spread([each.wall_s for each in calls]),
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
    result: dict[str, Any] = {"model": folder.name, "accuracy": {}}

    def note(into: dict[str, Any], part: str, value: dict[str, Any]) -> None:
        into[part] = value
        result.update(wall_s=round(time.monotonic() - began), load=[round(each, 1) for each in os.getloadavg()])
        if arguments.out:
            arguments.out.write_text(f"{json.dumps(result, indent=2)}\n")

    note(result["accuracy"], "ast", accuracy(lambda program, tree: place_milestones(tree), marked))
    note(result["accuracy"], "scripted", accuracy(by_marks, marked))
    note(result["accuracy"], "lm_lines", accuracy(partial(by_lines, model), marked))
    with tempfile.TemporaryDirectory() as place:
        inputs = Path(place)
        write_inputs(inputs)
        note(result, "lm_lines", over_programs("lm_lines", model, programs[: arguments.programs], inputs))
        note(result, "lm_rewrite", over_programs("lm_rewrite", model, programs[: arguments.rewrites], inputs))
    note(result["accuracy"], "lm_rewrite", accuracy(partial(by_rewriting, model), rewritten))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
