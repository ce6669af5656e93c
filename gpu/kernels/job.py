"""The one argument of every kernel as NumPy knows it; the only definitions are in cuda/.

That of the kernels that learn a vocabulary is cuda/training/job.cuh, that of all others
cuda/common/job.cuh. The latter consists of structs, by what their fields are for; no two of them
have a field of one name, so that a field is known here by its own name: `job.text.short_tokens` of
a kernel is `JOB["short_tokens"]`.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

CUDA = Path(__file__).parents[1] / "cuda"
_FIELD = re.compile(r"^ {4}(?:const )?(\w+)[ *]+(\w+)(?:\[(\w+)\])?;", re.MULTILINE)
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


@functools.cache
def constant(name: str) -> int:
    """The value of a `constexpr` number in a header of cuda/.

    Raises:
        LookupError: there is none of this name.
    """
    for path in sorted(CUDA.rglob("*.cuh")):
        found = re.search(rf"constexpr \w+ {name} = ([^;]+);", path.read_text())
        if found:
            return _value(ast.parse(re.sub(r"\b(\w+?)u(ll)?\b", r"\1", found[1]), mode="eval").body)
    raise LookupError(f"no constant is called {name} in cuda/")


def _value(term: ast.expr) -> int:
    """The value of numbers and other constants with + - * / and <<."""
    match term:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return constant(name)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](_value(left), _value(right))
    raise ValueError(f"a constant is {ast.dump(term)}")


def _body(text: str, struct: str) -> str:
    """What stands between the braces of a struct."""
    body = text[text.index(f"struct {struct} {{") :]
    return body[: body.index("\n};")]


def _record(file: str, struct: str) -> np.dtype[np.void]:
    """A struct of 8-byte fields, those of the structs in it by their own names."""
    text = (CUDA / file).read_text()
    fields = []
    for kind, name, count in _FIELD.findall(_body(text, struct)):
        if f"struct {kind} {{" in text and not count:
            fields += _FIELD.findall(_body(text, kind))
        else:
            fields.append((kind, name, count))
    return np.dtype(
        [
            (name, np.uint64, (constant(count),)) if count else (name, np.uint64)
            for _, name, count in fields
        ]
    )


JOB = _record("common/job.cuh", "Job")
TRAIN_JOB = _record("training/job.cuh", "TrainJob")
WORD = {name: place // 8 for name, (_, place, *_) in (JOB.fields or {}).items()}
"""Which of the 8-byte words of JOB each field begins with."""
STATUS = {
    name: constant(f"STATUS_{name}")
    for name in (
        "NUM_IDS",
        "FAULT",
        "CUT",
        "NUM_FRAMED",
        "FALLBACK",
        "NOT_UTF8",
        "NOT_COVERED",
        "ROWS",
    )
}
"""Which of the 8-byte words of the status says what."""
