"""Two hundred programs of varied style that run on the standard library alone, and a way to run them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap
from pathlib import Path
from random import Random
from unittest import mock

_IMPORTS = [
    "import csv\nimport os\nimport asyncio",
    "import csv, os, asyncio",
    "import asyncio\nfrom pathlib import Path\nimport csv as csv\nimport os",
    "import csv\ntry:\n    import os\nexcept ImportError:\n    os = None\nimport asyncio",
    "import os; import csv; import asyncio",
]
_HELPERS = """\
class Mean:
    def fit(self, rows):
        self.mean = sum(float(row["y"]) for row in rows) / len(rows)
        return self

    def predict(self, rows):
        return [self.mean + 0.1 * i for i, _ in enumerate(rows)]


def mean_error(rows, values):
    return sum(abs(float(row["y"]) - value) for row, value in zip(rows, values)) / len(rows)
"""
_LOADS = [
    'train = list(csv.DictReader(open("input/train.csv")))\ntest = list(csv.DictReader(open("input/test.csv")))',
    'with open("input/train.csv") as f:\n    train = list(csv.DictReader(f))\n'
    'with open("input/test.csv") as f:\n    test = list(csv.DictReader(f))',
    'frames = {}\nfor name in ("train", "test"):\n    with open(f"input/{name}.csv") as f:\n'
    '        frames[name] = list(csv.DictReader(f))\ntrain, test = frames["train"], frames["test"]',
    'train, test = ([*csv.DictReader(open(f"input/{n}.csv"))] for n in ("train", "test"))',
    'def read(n):\n    return list(csv.DictReader(open("input/" + n + ".csv")))\n'
    'train = read("train"); test = read("test")',
]
_MODELS = [
    "model = Mean()\nmodel.fit(train)\npred = model.predict(test)",
    "model = Mean().fit(train)\npred = model.predict(test)",
    "pred = Mean().fit(train).predict(test)",
    "w = 0.0\nfor epoch in range(30):\n    loss = sum((float(r['y']) - w) ** 2 for r in train) / len(train)\n"
    "    w -= 0.1 * sum(2 * (w - float(r['y'])) for r in train) / len(train)\npred = [w for _ in test]",
    "model, epoch = Mean(), 0\nwhile True:\n    model.fit(train)\n    epoch += 1\n    if epoch > 3: break\n"
    "    else: continue\npred = model.predict(test)",
    "scores = []\nfor k in range(3):\n    part = Mean().fit(train[k:])\n"
    "    score = mean_error(train, part.predict(train))\n    scores.append(score)\n"
    "model = Mean().fit(train)\npred = model.predict(test)\nprint(len(scores))",
    "def build(): return Mean()\nmodel = build(); model.fit(train); pred = model.predict(\n    test\n)",
    "best, value = None, float('inf')\nfor shift in (0, 1):\n    candidate = Mean()\n    candidate.fit(train[shift:])\n"
    "    error = mean_error(train, candidate.predict(train))\n    if error < value: best, value = candidate, error\n"
    "pred = best.predict(test)",
]
_WRITES = [
    'with open("submission.csv", "w") as f:\n    f.write("id,y\\n")\n    for r, p in zip(test, pred):\n'
    "        f.write(f\"{r['id']},{p:.6f}\\n\")",
    'out = open("submission.csv", "w", newline="")\nwriter = csv.writer(out)\nwriter.writerow(["id", "y"])\n'
    'writer.writerows([r["id"], round(p, 6)] for r, p in zip(test, pred))\nout.close()',
]
_SHADOW = "def print(*words, **_): __import__('sys').stdout.write(f'{words}')\nx = 1 + \\\n    2"
_ODD = [
    "",
    'print("loaded data")\nprint("trained model")\nprint("#mlrl:0000: loaded data")',
    '# loaded data, then trained model\n"""predicted test labels"""\ntext = """\n```\nimported packages\n```\n"""',
    'größe = "数据 – naïve café"  # é\nprint(größe)',
    'value = f"""{1 +\n    1}"""\nprint(value, end="")\nprint()',
    _SHADOW,
    "loss = 'not a number'\nerror = None\nfor _ in range(2):\n    pass\nelse:\n    print('else')",
    "match = {'a': 1}\nmatch match:\n    case {'a': value}:\n        print(value)\n    case _:\n        pass",
]
_WRAPS = [
    "{body}",
    "def run():\n{indented}\n\nrun()",
    'def main():\n    """Trains; loaded data."""\n{indented}\n\nif __name__ == "__main__":\n    main()',
    "class Solution:\n    kind = 'mean'\n    def run(self):\n{indented2}\n\nSolution().run()",
    "async def main():\n    await asyncio.sleep(0)\n{indented}\n\nasyncio.run(main())",
    "def logged(f):\n    def inner(*a):\n        print('start')\n        return f(*a)\n    return inner\n\n"
    "@logged\ndef main():\n{indented}\n    return len(pred)\n\nprint(main())",
    "def outer():\n    def inner():\n{indented2}\n        return pred\n    return inner\n\nprint(len(outer()()))",
    "try:\n{indented}\nexcept OSError:\n    print('failed')\n    raise\nfinally:\n    print('end')",
    "if True:\n{indented}\nelse: print('never')",
    "for attempt in range(1):\n{indented}",
]
_HEADS = ["", '"""Mean of the target."""\n', "from __future__ import annotations\n", "#!/usr/bin/env python\n"]
_LINE_ENDS = ["\n", "\n", "\n", "\r\n"]


def varied_programs(number: int = 200) -> list[str]:
    """The same programs every time; no two alike."""
    rng = Random(1)
    programs: dict[str, None] = {}
    while len(programs) < number:
        programs[_program(rng)] = None
    return list(programs)


def _program(rng: Random) -> str:
    steps = [rng.choice(_LOADS), rng.choice(_MODELS), rng.choice(_WRITES), 'print("done", len(pred))']
    odd = rng.choice(_ODD)
    steps.insert(0 if odd is _SHADOW else rng.randrange(len(steps) + 1), odd)
    body = "\n".join(step for step in steps if step)
    if "match match" in body and rng.random() < 0.5:
        body = body.replace("print(value)", "print(value, 'matched')")
    wrap = rng.choice(_WRAPS)
    inside = wrap.format(
        body=body, indented=_indent(body, 1) if "{indented}" in wrap else "", indented2=_indent(body, 2)
    )
    head = rng.choice(_HEADS)
    code = f"{head}{rng.choice(_IMPORTS)}\n\n{_HELPERS}\n{inside}\n"
    if rng.random() < 0.2:
        code = code.replace("    ", "\t")
    return code.replace("\n", rng.choice(_LINE_ENDS)).rstrip() + rng.choice(["", "\n"])


def _indent(body: str, depth: int) -> str:
    return textwrap.indent(body, "    " * depth)


def write_inputs(folder: Path) -> None:
    (folder / "input").mkdir()
    (folder / "input" / "train.csv").write_text("id,x,y\n1,2,3\n2,3,5\n3,4,4\n4,9,1\n")
    (folder / "input" / "test.csv").write_text("id,x\n5,2\n6,1\n7,0\n")


def run_program(source: str, folder: Path) -> tuple[str, bytes]:
    """Standard output and the submission of a program that is run in ``folder``, in this process."""
    submission = folder / "submission.csv"
    submission.unlink(missing_ok=True)
    before = os.getcwd()
    output = io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(output), mock.patch.object(sys, "__stdout__", output):
            exec(compile(source, "solution.py", "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
    return output.getvalue(), submission.read_bytes()
