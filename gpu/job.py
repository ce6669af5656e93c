"""The one argument of every kernel as NumPy knows it; cuda/job.cuh is its only definition."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

__all__ = ["CUDA", "JOB", "WORD", "constant"]

CUDA = Path(__file__).parent / "cuda"
_FIELD = re.compile(r"^ {4}(?:const )?\w+[ *]+(\w+)(?:\[(\w+)\])?;", re.MULTILINE)
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


@functools.cache
def constant(name: str) -> int:
    """The value of a `constexpr` number in cuda/*.cuh.

    Raises:
        LookupError: there is none of this name.
    """
    for path in sorted(CUDA.glob("*.cuh")):
        found = re.search(rf"constexpr \w+ {name} = ([^;]+);", path.read_text())
        if found:
            return _value(ast.parse(re.sub(r"\b(\w+?)u(ll)?\b", r"\1", found[1]), mode="eval").body)
    raise LookupError(f"no constant is called {name} in cuda/*.cuh")


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


def _fields() -> np.dtype[np.void]:
    text = (CUDA / "job.cuh").read_text()
    body = text[text.index("struct Job {") :]
    body = body[: body.index("\n};")]
    fields = []
    for name, count in _FIELD.findall(body):
        fields.append((name, np.uint64, (constant(count),)) if count else (name, np.uint64))
    return np.dtype(fields)


JOB = _fields()
"""One record of 8-byte fields; a pointer is the address."""
WORD = {name: place // 8 for name, (_, place, *_) in (JOB.fields or {}).items()}
"""Which of the 8-byte words each field begins with."""
