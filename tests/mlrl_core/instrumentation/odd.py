# ruff: noqa: E501  (a program's lines are kept together)
"""Programs in styles that a person rarely writes and a model may: each runs on the standard library alone, in a folder
with ``input/train.csv`` (id, x, y) and ``input/test.csv`` (id, x), and writes ``submission.csv``."""

from __future__ import annotations

_READ = """\
import csv
train = list(csv.DictReader(open("input/train.csv")))
test = list(csv.DictReader(open("input/test.csv")))
"""
_MODEL = """\
class Mean:
    def fit(self, rows):
        self.mean = sum(float(r["y"]) for r in rows) / len(rows)
        return self
    def predict(self, rows):
        return [self.mean + float(r["x"]) for r in rows]
"""
_WRITE = """\
with open("submission.csv", "w") as f:
    f.write("id,y\\n")
    for r, p in zip(test, pred):
        f.write(f"{r['id']},{p:.4f}\\n")
"""
_FIT = "model = Mean()\nmodel.fit(train)\npred = model.predict(test)\n"
_HEAD = _READ + _MODEL


def _indent(text: str, by: str = "    ") -> str:
    return "".join(f"{by}{line}\n" if line else "\n" for line in text.split("\n")[:-1])


ODD_PROGRAMS: dict[str, str] = {
    "plain": _HEAD + _FIT + _WRITE,
    "crlf": (_HEAD + _FIT + _WRITE).replace("\n", "\r\n"),
    "old mac line ends": (_HEAD + _FIT + _WRITE).replace("\n", "\r"),
    "mixed line ends": (_HEAD + _FIT).replace("\n", "\r\n") + _WRITE,
    "no line end at the end": (_HEAD + _FIT + _WRITE).rstrip("\n"),
    "byte order mark": "\ufeff" + _HEAD + _FIT + _WRITE,
    "form feeds between": _HEAD.replace("class", "\f\nclass") + "\f" + _FIT + "\f\n" + _WRITE,
    "form feeds before indentation": _HEAD + "if True:\n\f    model = Mean()\n\f    model.fit(train)\n"
    "\f    pred = model.predict(test)\n" + _WRITE,
    "vertical tab and nel in strings": _HEAD + 's = "a\v\x85\u2028b"\nprint(len(s), "\\x0b" in s)\n' + _FIT + _WRITE,
    "tabs": _HEAD + "if True:\n" + _indent(_FIT + _WRITE, "\t"),
    "one blank": _HEAD + "if True:\n" + _indent(_FIT + _WRITE, " "),
    "semicolons": "import csv; train = list(csv.DictReader(open('input/train.csv'))); "
    "test = list(csv.DictReader(open('input/test.csv')))\n" + _MODEL + "model = Mean(); model.fit(train); "
    "pred = model.predict(test); print(len(pred))\n" + _WRITE,
    "semicolon at the end": _HEAD + "model = Mean();\nmodel.fit(train);\npred = model.predict(test);\n" + _WRITE,
    "statement behind a closing bracket": _READ + _MODEL + "names = [\n    'a',\n    'b']; model = Mean()\n"
    "z = (\n        1); model.fit(train)\nq = [\n   0]; pred = model.predict(test)\n" + _WRITE,
    "statement behind a text of several lines": _HEAD + 'doc = """a\nb\n  c"""; model = Mean(); note = """\n x"""; '
    "model.fit(train)\npred = model.predict(test)\nprint(doc, note)\n" + _WRITE,
    "backslashes": _READ + _MODEL + "model = \\\n    Mean()\nmodel.\\\nfit(train)\npred = model \\\n  .predict(test)\n"
    + _WRITE,
    "backslash and an empty line": _READ + _MODEL + "model = Mean()\nmodel.fit(train) \\\n\n"
    "pred = model.predict(test)\n" + _WRITE,
    "backslash behind a semicolon": _READ + _MODEL + "model = Mean(); \\\nmodel.fit(train); \\\n"
    "pred = model.predict(test)\n" + _WRITE,
    "comment that ends in a backslash": _HEAD + "model = Mean()  # C:\\\nmodel.fit(train)  # \\\n"
    "pred = model.predict(test)\n" + _WRITE,
    "indentation by a backslash": _HEAD + "if True:\n    \\\n  model = Mean()\n    model.fit(train)\n"
    "    pred = model.predict(test)\n" + _WRITE,
    "one line blocks": _HEAD + "for _ in range(1): model = Mean(); model.fit(train)\n"
    "if train: pred = model.predict(test)\nelse: pred = []\n" + _WRITE,
    "match": _HEAD + "match len(train):\n    case 0:\n        pred = []\n    case n if n > 1:\n"
    "        model = Mean()\n        model.fit(train)\n        pred = model.predict(test)\n" + _WRITE,
    "soft keywords": _HEAD + "match = case = type = _ = 1\nprint(match, case, type, _)\n" + _FIT + _WRITE,
    "walrus": _READ + _MODEL + "if (model := Mean()) and (fitted := model.fit(train)):\n"
    "    pred = (p := model.predict(test))\nprint(len(p))\n" + _WRITE,
    "walrus in a comprehension": _HEAD + "scores = [s for k in (1, 2) if (s := Mean().fit(train[k:]).mean)]\n"
    "print(scores)\n" + _FIT + _WRITE,
    "fit in a comprehension": _HEAD + "models = [Mean().fit(train[k:]) for k in range(2)]\n"
    "pred = [sum(v) / 2 for v in zip(*[m.predict(test) for m in models])]\nprint(models[0].mean)\n" + _WRITE,
    "fit in a condition": _HEAD + "model = Mean()\nif model.fit(train).mean > 0:\n    pred = model.predict(test)\n"
    "else:\n    pred = [0.0 for _ in test]\n" + _WRITE,
    "fit in a lambda": _HEAD + "build = lambda rows: Mean().fit(rows)\npred = build(train).predict(test)\n" + _WRITE,
    "fit in a default": _HEAD + "def make(model=Mean().fit(train)):\n    return model.predict(test)\npred = make()\n"
    + _WRITE,
    "fit in a decorator": _HEAD + "def keep(m):\n    return lambda f: (lambda: f(m))\n@keep(Mean().fit(train))\n"
    "def made(m):\n    return m.predict(test)\npred = made()\n" + _WRITE,
    "nested functions": "def outer():\n" + _indent(_HEAD) + "    def inner(rows):\n        model = Mean()\n"
    "        def deep():\n            nonlocal model\n            model = model.fit(rows)\n            return model\n"
    "        return deep()\n    model = inner(train)\n    pred = model.predict(test)\n" + _indent(_WRITE) + "outer()\n",
    "globals": _HEAD + "loss = None\ndef train_it():\n    global model, loss\n    model = Mean()\n    model.fit(train)\n"
    "    loss = model.mean\n    return\ntrain_it()\npred = model.predict(test)\nprint(loss)\n" + _WRITE,
    "a name is deleted": _HEAD + "for k in range(2):\n    loss = Mean().fit(train).mean\n    accuracy_score = loss\n"
    "    del loss\nmodel = Mean()\nmodel.fit(train)\npred = model.predict(test)\ndel model\n" + _WRITE,
    "async": "import asyncio\n" + _HEAD + "async def main():\n    async def work(rows):\n        await asyncio.sleep(0)\n"
    "        return Mean().fit(rows)\n    models = await asyncio.gather(*(work(train) for _ in range(2)))\n"
    "    model = models[0]\n    return model.predict(test)\npred = asyncio.run(main())\n" + _WRITE,
    "async for and with": "import asyncio, contextlib\n" + _HEAD + "@contextlib.asynccontextmanager\nasync def ctx():\n"
    "    yield Mean()\nasync def gen():\n    for i in range(3):\n        yield i\nasync def main():\n    global pred\n"
    "    async with ctx() as model:\n        async for i in gen():\n            model.fit(train)\n"
    "            loss = model.mean\n        pred = model.predict(test)\nasyncio.run(main())\n" + _WRITE,
    "generator": _HEAD + "def steps():\n    model = Mean()\n    yield model\n    model.fit(train)\n    yield model.mean\n"
    "    pred = model.predict(test)\n    yield pred\n*_, pred = steps()\n" + _WRITE,
    "decorators": "import functools\n" + _HEAD + "def twice(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n"
    "        f(*a, **k); return f(*a, **k)\n    return g\n@twice\n@functools.lru_cache(\n    maxsize=None,\n)\n"
    "def run():\n    model = Mean()\n    model.fit(train)\n    print('trained')\n    return model.predict(test)\n"
    "pred = run()\n" + _WRITE,
    "main guard": _HEAD + "def main():\n" + _indent(_FIT + _WRITE) + "\nif __name__ == '__main__':\n    main()\n",
    "main guard in one line": _HEAD + "def main():\n" + _indent(_FIT + _WRITE) + "\nif __name__ == '__main__': main()\n",
    "exit in the middle": "import sys\n" + _HEAD + _FIT + _WRITE + "sys.exit(0)\nprint('never')\nmodel.fit(test)\n",
    "exit in finally": "import sys\n" + _HEAD + "try:\n" + _indent(_FIT + _WRITE) + "finally:\n    print('end')\n"
    "    sys.exit(0)\n",
    "try else finally": _HEAD + "try:\n    model = Mean()\n    model.fit(train)\nexcept ValueError:\n    raise\nelse:\n"
    "    pred = model.predict(test)\nfinally:\n    print('done')\n" + _WRITE,
    "raised again": _HEAD + "try:\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        model = Mean()\n"
    "        model.fit(train)\n        raise\nexcept ZeroDivisionError as error:\n    print(type(error.__context__), error)\n"
    "pred = model.predict(test)\n" + _WRITE,
    "except star": _HEAD + "try:\n    raise ExceptionGroup('g', [ValueError(1)])\nexcept* ValueError as group:\n"
    "    model = Mean()\n    model.fit(train)\n    print(group)\npred = model.predict(test)\n" + _WRITE,
    "future and docstring": '"""Loaded data, then\ntrained model."""\nfrom __future__ import annotations\n' + _HEAD + _FIT
    + _WRITE,
    "docstrings alone": _HEAD + 'def f():\n    "trained model"\ndef g():\n    """x"""; return 1\nprint(f(), g())\n' + _FIT
    + _WRITE,
    "coding line": "# -*- coding: latin-1 -*-\n" + _HEAD + "print('ready')\n" + _FIT + _WRITE,
    "coding line of seven bits": "# coding: utf-7\n" + _HEAD.replace("self.mean + ", "2 * ") + "# +AAo-print('hidden')\n"
    + _FIT + _WRITE,
    "shebang": "#!/usr/bin/env python3\n" + _HEAD + _FIT + _WRITE,
    "non ascii": _HEAD + "größe = {'é': '数据', '😀': 1}; modèle = Mean(); modèle.fit(train)\nprint(größe)\n"
    "pred = modèle.predict(test)\n" + _WRITE,
    "f-strings over lines": _HEAD + _FIT + 'print(f"""{len(pred)}\n{\n    sum(pred):.3f}\n    end""", end="")\n' + _WRITE,
    "f-string that fits": _HEAD + 'print(f"{(model := Mean()).fit(train).mean:.2f}")\npred = model.predict(test)\n'
    + _WRITE,
    "milestone prints of its own": _HEAD + "print('loaded data')\nmodel = Mean()\nprint('defined model')\nmodel.fit(train)\n"
    "print('trained model')\nprint('#mlrl:0123: trained model')\nprint('training loss: 0.1')\npred = model.predict(test)\n"
    "print('predicted test labels', flush=True)\n" + _WRITE,
    "output left open": _HEAD + "import sys\nsys.stdout.write('progress 1')\nmodel = Mean()\nmodel.fit(train)\n"
    "sys.stdout.write('\\rprogress 2')\npred = model.predict(test)\nprint(' end', end='')\n" + _WRITE,
    "output redirected": "import contextlib, io\n" + _HEAD + "out = io.StringIO()\nwith contextlib.redirect_stdout(out):\n"
    "    print('inside')\n    model = Mean()\n    model.fit(train)\n    pred = model.predict(test)\n"
    "print(repr(out.getvalue()))\n" + _WRITE,
    "output replaced": "import io, sys\n" + _HEAD + "class Tee(io.TextIOBase):\n    def __init__(self, to):\n"
    "        self.to, self.lines = to, 0\n    def write(self, s):\n        self.lines += s.count('\\n')\n"
    "        return self.to.write(s)\n    def flush(self):\n        self.to.flush()\nsys.stdout = Tee(sys.stdout)\n" + _FIT
    + "print('so far')\nprint(sys.stdout.lines)\n" + _WRITE,
    "output wrapped anew": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n" + _HEAD
    + _FIT + "print('é')\n" + _WRITE,
    "output closed": "import sys\n" + _HEAD + "print('last')\nsys.stdout.close()\n" + _FIT + _WRITE,
    "print replaced": "import builtins\n" + _HEAD + "seen = []\nkept = builtins.print\n"
    "builtins.print = lambda *a, **k: seen.append(a)\n" + _FIT + "builtins.print = kept\nprint(seen)\n" + _WRITE,
    "import replaced": "import builtins\n" + _HEAD + "names, kept = [], builtins.__import__\n"
    "builtins.__import__ = lambda name, *a, **k: (names.append(name), kept(name, *a, **k))[1]\n"
    + _FIT + "import json\nbuiltins.__import__ = kept\nprint('json' in names)\n" + _WRITE,
    "import shadowed": _HEAD + "def __import__(name):\n    raise SystemExit(name)\n" + _FIT + _WRITE,
    "number with a temper": _HEAD + "class Loud(float):\n    def __float__(self):\n        print('asked')\n        return 1.0\n"
    "    def __mod__(self, other):\n        print('mod')\n        return 0\ndef log_loss(a):\n    return Loud(a)\n"
    "model = Mean()\nmodel.fit(train)\nloss = log_loss(0.5)\nscore = log_loss(0.2)\nprint(type(loss).__name__)\n"
    "pred = model.predict(test)\n" + _WRITE,
    "number that leaves": _HEAD + "class Leaves:\n    def __float__(self):\n        raise SystemExit(3)\n"
    "def log_loss(a):\n    return Leaves()\nmodel = Mean()\nmodel.fit(train)\nscore = log_loss(0.2)\n"
    "pred = model.predict(test)\n" + _WRITE,
    "builtins listed": "import builtins\n" + _HEAD + "before = set(dir(builtins))\n" + _FIT
    + "print(sorted(set(dir(builtins)) - before - {'_'}))\n" + _WRITE,
    "enum and dataclass": "import dataclasses, enum\n" + _HEAD + "class Kind(enum.Enum):\n    A = Mean().fit(train).mean\n"
    "    B = 2\n@dataclasses.dataclass\nclass Settings:\n    model: Mean = dataclasses.field(default_factory=Mean)\n"
    "    loss: float = 0.5\nprint(len(Kind), Settings().loss)\n" + _FIT + _WRITE,
    "class body": _HEAD + "class Run:\n    model = Mean()\n    model.fit(train)\n    pred = model.predict(test)\n"
    "print(sorted(n for n in vars(Run) if not n.startswith('__')))\npred = Run.pred\n" + _WRITE,
    "class based pipeline": _READ + _MODEL + "class Pipeline:\n    def __init__(self, *steps): self.steps = steps\n"
    "    def __enter__(self): return self\n    def __exit__(self, *a): print('left'); return False\n"
    "    def run(self, x, z):\n        for step in self.steps: step.fit(x)\n        return self.steps[-1].predict(z)\n"
    "with Pipeline(Mean(), Mean()) as pipe, open('submission.csv', 'w') as f:\n    pred = pipe.run(train, test)\n"
    "    print(*[f\"{r['id']},{p}\" for r, p in zip(test, pred)], sep='\\n', file=f)\n",
    "notebook": "# %% [markdown]\n# # Loaded data\n# %%\n" + _READ + "# %%\n" + _MODEL + "# %%\n" + _FIT + "# %%\n" + _WRITE
    + "# %%\n",
    "annotated": _HEAD + "from typing import Any\nRows = list[dict[str, str]]\nmodel: Mean = Mean()\nloss: float\n"
    "loss: float = model.fit(train).mean\nscore: Any = loss\npred: list[float] = model.predict(test)\n" + _WRITE,
    "starred": _HEAD + "first, *rest = train\n(model,), *_ = [[Mean()], 1]\nmodel.fit([first, *rest])\n"
    "pred = [*model.predict(test)]\n" + _WRITE,
    "while else": _HEAD + "i = 0\nloss = 1.0\nwhile i < 3:\n    i += 1\n    model = Mean()\n    model.fit(train)\n"
    "    loss = model.mean / i\n    if i == 9: break\nelse:\n    print('whole', loss)\npred = model.predict(test)\n" + _WRITE,
    "return out of a loop": _HEAD + "def run():\n    while True:\n        for k in range(5):\n            model = Mean()\n"
    "            model.fit(train)\n            loss = model.mean\n            if loss:\n                return model\n"
    "pred = run().predict(test)\n" + _WRITE,
    "exec": _HEAD + 'exec("""\nmodel = Mean()\nmodel.fit(train)\npred = model.predict(test)\n""")\n' + _WRITE,
    "assert and pass": _HEAD + "assert train, 'no rows'\npass\n...\n" + _FIT + "assert pred; pass\n" + _WRITE,
    "many": _HEAD + "x = [" + ", ".join(map(str, range(5000))) + "]\nprint(sum(x))\n" + _FIT + _WRITE,
    "deep nesting": _HEAD + "".join("    " * i + "if True:\n" for i in range(15)) + "    " * 15 + "model = Mean()\n" + "    " * 15
    + "model.fit(train)\n" + "    " * 15 + "pred = model.predict(test)\n" + _WRITE,
    "comments everywhere": "# a\n" + "\n# c\n".join((_HEAD + _FIT).split("\n")).replace("\n\n", "\n") + "  # end\n" + _WRITE,
    "threads": "import threading\n" + _HEAD + "done = []\ndef work(k):\n    model = Mean()\n    model.fit(train)\n"
    "    done.append(model)\npool = [threading.Thread(target=work, args=(k,)) for k in range(3)]\n[t.start() for t in pool]\n"
    "[t.join() for t in pool]\npred = done[0].predict(test)\nprint(len(done))\n" + _WRITE,
    "warnings": "import warnings\n" + _HEAD + "warnings.simplefilter('error')\n" + _FIT + _WRITE,
    "profile of lines": "import sys\n" + _HEAD + "calls = []\nsys.setprofile(lambda f, e, a: calls.append(e) if e == 'call' else 0)\n"
    + _FIT + "sys.setprofile(None)\nprint(calls.count('call') >= 4)\n" + _WRITE,
}  # fmt: skip
