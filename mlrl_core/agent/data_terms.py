"""What names and texts of a program say about the flow of data in it (``learning``)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Value = frozenset[object]  # what a value may come from: TRAIN, OTHER, or parameters (function, name)

TRAIN, OTHER = "train", "other"
NOTHING: Value = frozenset()
FILE = r"\.(csv|tsv|jsonl?|parquet|feather|npy|npz|txt|pkl|h5|zip|gz|xlsx?)\b"
_TRAINING_DATA = re.compile(rf"^train$|train[\w*-]*(/|{FILE})|/train$", re.IGNORECASE)
_OTHER_DATA = re.compile(r"^(test|sample|submission)$|(test|sample|submission|example)[\w*-]*" + FILE, re.IGNORECASE)
READERS = re.compile(r"^(read_\w+|scan_\w+|open|read|loadtxt|genfromtxt|load|DictReader|reader|read_text)$")
SHAPE = frozenset({"shape", "columns", "dtypes", "dtype", "ndim", "size", "empty"})
# These tell nothing of what they are given: questions about its form, and random draws.
SILENT = frozenset(
    {"len", "isinstance", "type", "id", "hasattr", "exists", "is_file", "isfile", "isdir", "print", "nunique", "seed"}
    | {"choice", "choices", "uniform", "normal", "gauss", "normalvariate", "randint", "randrange", "integers", "random"}
    | {"rand", "randn", "binomial", "beta", "poisson", "multinomial", "dirichlet", "exponential", "random_sample"}
)
RECEIVER_ALONE = frozenset({"fit", "fillna"})  # of an encoder; imputation
FIRST_ARGUMENT = frozenset(
    {"heappush", "heappushpop", "insort", "insort_left", "insort_right", "at", "copyto", "put", "setattr"}
)
FRAME_WRITERS = frozenset({"to_csv", "write_csv", "sink_csv"})
WRITERS = frozenset({"savetxt", "write", "writelines", "writerow", "writerows", "write_text"})
COPIERS = frozenset({"copy", "copyfile", "copy2", "move", "rename", "replace", "symlink", "system", "run", "sql"})


def of_text(text: str) -> Value:
    """What a text that names a file or a table says of where the values come from."""
    if _TRAINING_DATA.search(text):
        return frozenset({TRAIN})
    return frozenset({OTHER}) if _OTHER_DATA.search(text) else NOTHING


def parameters_of(function: Function) -> list[str]:
    """The names of all its parameters, in the order in which a call fills them."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [each.arg for each in every if each is not None]


def assigned_in(function: Function) -> set[str]:
    """The names that a function assigns, not those of functions within it."""
    names: set[str] = set()
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        if not isinstance(node, FUNCTIONS):
            left += ast.iter_child_nodes(node)
    return names


def captured_by(pattern: ast.pattern) -> Iterator[str]:
    """The names that a ``case`` binds."""
    for node in ast.walk(pattern):
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name


def root_of(node: ast.expr) -> str:
    """``a`` of ``a.b[c].d(e)``; empty where it begins with no name."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def opens_to_write(call: ast.Call) -> bool:
    """Whether a file is opened to be written."""
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode"), *call.args[:1]]
    texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(text[:1] in "wax" and len(text) < 4 for text in texts)
