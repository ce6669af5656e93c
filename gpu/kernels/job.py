"""Reads the argument of all kernels, the Job, from the CUDA headers as a NumPy record.

cuda/training/job.cuh defines it for the kernels that learn a vocabulary, cuda/common/job.cuh for
all others. The latter is made of structs whose field names are unique across all of them. So the
host uses the name alone: `job.text.short_tokens` of a kernel is `JOB["short_tokens"]` here.
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
_CONSTANT = re.compile(r"constexpr \w+ (\w+) = ([^;]+);")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


@functools.cache
def constant(name: str) -> int:
    """Return the value of a `constexpr` number in a header of cuda/.

    Raises:
        LookupError: no header defines it.
    """
    term = _constants().get(name)
    if term is None:
        raise LookupError(f"no constant is called {name} in cuda/")
    return _value(ast.parse(re.sub(r"\b(\w+?)u(ll)?\b", r"\1", term), mode="eval").body)


@functools.cache
def _constants() -> dict[str, str]:
    """Read the term of each `constexpr` number; of equal names the first header's counts."""
    found: dict[str, str] = {}
    for path in sorted(CUDA.rglob("*.cuh")):
        for name, term in _CONSTANT.findall(path.read_text()):
            found.setdefault(name, term)
    return found


def _value(term: ast.expr) -> int:
    """Evaluate an expression of numbers and constants with + - * / and <<."""
    match term:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return constant(name)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](_value(left), _value(right))
    raise ValueError(f"a constant is {ast.dump(term)}")


def _body(text: str, struct: str) -> str:
    """Return the text between the braces of a struct."""
    body = text[text.index(f"struct {struct} {{") :]
    return body[: body.index("\n};")]


def _record(file: str, struct: str) -> np.dtype[np.void]:
    """Return a struct of 8-byte fields as a NumPy record; nested structs are flattened."""
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
"""The number of the 8-byte word of JOB at which each field begins."""
STATUS = {
    name: constant(f"STATUS_{name}")
    for name in (
        "NUM_IDS",
        "FAULT",
        "TRUNCATED",
        "NUM_POST_PROCESSED",
        "FALLBACK",
        "NOT_UTF8",
        "NOT_COVERED",
        "ROWS",
    )
}
"""The number of the 8-byte word of the status that reports each thing."""
