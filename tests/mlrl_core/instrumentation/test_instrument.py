"""Milestone prints stand where a person would put them and change nothing else."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mlrl_core.instrumentation import MILESTONES, VALUED, instrument, new_nonce, original_lines

NONCE = "#mlrl:0123456789abcdef:"
PLAIN_LABELS = tuple(label for label in MILESTONES if label not in VALUED)

PLAIN = """\
    import os
    import pickle as reader

    def read_numbers(n):
        return list(range(n))

    class Model:
        def fit(self, x, y):
            self.mean = sum(y) / len(y)
            return self
        def predict(self, x):
            return [self.mean for _ in x]

    train = read_numbers(4)
    test = read_numbers(2)
    scaler = Model()
    scaler.fit(train, train)
    model = Model()
    model.fit(train, train)
    print(model.predict(train))
    predictions = model.predict(test)
    print("done", predictions)
"""

IN_FUNCTIONS = """\
    import math
    from types import SimpleNamespace as Estimator

    def load():
        def read_table(): return [1, 2]
        return read_table()

    def train_model(x):
        model = Estimator(fit=lambda x: None, predict=lambda x: x)
        model.fit(x)
        return model

    def main():
        data = load()
        model = train_model(data)
        print(model.predict(data))

    if __name__ == "__main__":
        main()
"""

LOOP = """\
    import itertools
    class Optimizer:
        def step(self): pass
    optimizer = Optimizer()
    for epoch in range(2):
        for batch in range(3):
            optimizer.step()
    print("trained")
"""


def run(source: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "solution.py"
    script.write_text(source)
    return subprocess.run(
        [sys.executable, "-I", str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )


def seen(stdout: str) -> list[str]:
    return [line.removeprefix(f"{NONCE} ") for line in stdout.splitlines() if line.startswith(NONCE)]


def without(stdout: str) -> str:
    return "".join(line for line in stdout.splitlines(keepends=True) if not line.startswith(NONCE))


def inserted_after(code: str, source: str, label: str) -> str:
    """The line of the original after which the print of ``label`` stands."""
    lines = source.splitlines()
    place = next(i for i, line in enumerate(lines) if f'"{NONCE} {label}\\n"' in line)
    while NONCE in lines[place] or lines[place].strip() == "except BaseException: pass":
        place -= 1
    assert lines[place] in code.splitlines()
    return lines[place].strip()


def test_where_milestones_stand() -> None:
    code = textwrap.dedent(PLAIN)
    program = instrument(code, "ast", NONCE)
    assert program.milestones == PLAIN_LABELS
    assert {label: inserted_after(code, program.source, label) for label in PLAIN_LABELS} == {
        "imported packages": "import pickle as reader",
        "loaded data": "test = read_numbers(2)",
        "defined model": "model = Model()",  # not the scaler: it predicts nothing
        "trained model": "model.fit(train, train)",
        "predicted test labels": "predictions = model.predict(test)",  # not the one on the training data
    }


@pytest.mark.parametrize("code", [PLAIN, IN_FUNCTIONS, LOOP], ids=["plain", "functions", "loop"])
def test_same_output_and_milestones_once_in_order(code: str, tmp_path: Path) -> None:
    code = textwrap.dedent(code)
    program = instrument(code, "ast", NONCE)
    original, instrumented = run(code, tmp_path), run(program.source, tmp_path)
    assert original.returncode == instrumented.returncode == 0
    assert without(instrumented.stdout) == original.stdout
    assert seen(instrumented.stdout) == list(program.milestones)


def test_a_return_is_reached_where_the_function_is_called() -> None:
    program = instrument(textwrap.dedent(IN_FUNCTIONS), "ast", NONCE)
    assert inserted_after(textwrap.dedent(IN_FUNCTIONS), program.source, "loaded data") == "data = load()"


def test_a_training_loop_counts_once_after_its_end() -> None:
    code = textwrap.dedent(LOOP)
    assert inserted_after(code, instrument(code, "ast", NONCE).source, "trained model") == "optimizer.step()"
    assert instrument(code, "ast", NONCE).source.count(f'"{NONCE} trained model\\n"') == 1


@pytest.mark.parametrize(
    "code",
    [
        "import os; import sys; print(1)\n",
        "import os\nprint = None\n",  # a shadowed print
        "import os, sys\nsys.stdout.close()\nopen('x', 'w').write('y')\n",  # closed output
        "import os\r\nx = '''a\r\nb'''\r\nprint(len(x))\r\n",
        "if True:\n\timport os\n\tprint('tab')\n",
        "import os\nm = type('M', (), {'fit': lambda s: s, 'predict': lambda s, t: t})()\nif m: m.fit(); print(2)\n",
        "# -*- coding: utf-8 -*-\nfrom __future__ import annotations\nimport os\nprint('é\u2028\x0c')\n",
        'import os\nprint(f"""a\n{1 + 1}\nb""")\n',
        "import os\nx = 1 + \\\n    2\nprint(x)\n",
        "import os\ndef f():\n    import sys\n    return sys.maxsize\nprint(f() > 0)\n",
        "import os",
        "import os\nm = type('M', (), {'fit': lambda s, f: f})()\n@m.fit\ndef g():\n    return 3\nprint(g())\n",
        "import os\nx = (1,\n     2); y = 3\nprint(x, y)\n",
        "if 1:\n  import os; z = 1\n  print(z)\n",
    ],
)
def test_odd_programs_behave_as_they_did(code: str, tmp_path: Path) -> None:
    program = instrument(code, "ast", NONCE)
    assert program.fallback_reason is None
    original, instrumented = run(code, tmp_path), run(program.source, tmp_path)
    assert (instrumented.returncode, without(instrumented.stdout)) == (original.returncode, original.stdout)


def test_what_comes_before_a_crash_is_kept(tmp_path: Path) -> None:
    code = textwrap.dedent(PLAIN).replace("model.fit(train, train)", "model.fit(train, None)")
    result = run(instrument(code, "ast", NONCE).source, tmp_path)
    assert result.returncode == 1
    assert seen(result.stdout) == ["imported packages", "loaded data", "defined model"]


def test_tracebacks_name_the_original_lines(tmp_path: Path) -> None:
    code = textwrap.dedent(PLAIN).replace('print("done", predictions)', "undefined_name")
    program = instrument(code, "ast", NONCE)
    line = code.splitlines().index("undefined_name") + 1
    stderr = run(program.source, tmp_path).stderr
    assert f"line {line}," not in stderr
    assert f"line {line}," in original_lines(stderr, program.line_map)


def test_line_map_finds_every_original_line() -> None:
    program = instrument(textwrap.dedent(PLAIN), "ast", NONCE)
    lines = program.source.splitlines()
    original = textwrap.dedent(PLAIN).splitlines()
    kept = [(number, lines[i]) for i, number in enumerate(program.line_map[: len(lines)]) if number]
    assert kept == list(enumerate(original, start=1))


@pytest.mark.parametrize(
    ("code", "reason"),
    [("print((\n", "does not parse"), (f"x = '{NONCE}'\n", "holds the nonce"), ("\x00", "does not parse")],
)
def test_the_original_runs_when_it_cannot_be_instrumented(code: str, reason: str) -> None:
    program = instrument(code, "ast", NONCE)
    assert program.source == code
    assert program.inserter == "none"
    assert reason in (program.fallback_reason or "")


def test_none_inserts_nothing() -> None:
    program = instrument("import os\n", "none", NONCE)
    assert (program.source, program.milestones, program.fallback_reason) == ("import os\n", (), None)


def test_nonces_are_not_repeated() -> None:
    assert len({new_nonce() for _ in range(1000)}) == 1000


def test_warnings_and_log_records_name_the_original_lines() -> None:
    text = "/job/solution.py:5: UserWarning: x\nWARNING:solution.py:4:x\nresolution.py:5: y\n"
    expected = "/job/solution.py:3: UserWarning: x\nWARNING:solution.py:2:x\nresolution.py:5: y\n"
    assert original_lines(text, (1, 2, 0, 0, 3)) == expected


def test_a_place_that_can_hold_no_print_leaves_the_others(tmp_path: Path) -> None:
    code = "import os\nif True:\n    \\\n  m = type('M', (), {'fit': lambda s: s, 'predict': lambda s, t: t})()\n"
    code += "    m.fit()\n    p = m.predict('test')\nprint(p)\n"
    program = instrument(code, "ast", NONCE)
    assert (program.fallback_reason, run(program.source, tmp_path).returncode) == (None, 0)
    assert program.milestones == ("imported packages", "trained model", "predicted test labels")


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "+".join(["1"] * 600) + "\nm.fit(x)\n",
        "m.fit(a" + ".b()" * 400 + ")\n",
        "if x:\n pass\n" + "elif x:\n pass\n" * 600,
        "x = " + "(" * 10_000,
    ],
)
def test_a_program_that_is_too_deep_runs_as_written(code: str) -> None:
    program = instrument(code, "ast", NONCE)
    assert program.source == code or program.milestones
    assert (program.source == code) == bool(program.fallback_reason)


def test_what_a_program_captures_holds_no_nonce(tmp_path: Path) -> None:
    code = (
        "import builtins, contextlib, io\nheard = io.StringIO()\nsaid = []\nkept = builtins.print\n"
        "builtins.print = lambda *words, **_: said.append(words)\nwith contextlib.redirect_stdout(heard):\n"
        "    m = type('M', (), {'fit': lambda s: s, 'predict': lambda s, t: t})()\n    m.fit()\n"
        "kept(repr(heard.getvalue()), said)\n"
    )
    program = instrument(code, "ast", NONCE)
    printed = run(program.source, tmp_path).stdout
    assert seen(printed) == ["imported packages", "defined model", "trained model"]
    assert without(printed) == "'' []\n"
