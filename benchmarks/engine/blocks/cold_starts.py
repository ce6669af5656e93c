"""Times a fresh process until its first exact ids, with and without compiled kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import time

import numpy as np

from benchmarks.engine.blocks.session import Block, Row, Session
from benchmarks.engine.first_call import TEXT
from benchmarks.engine.references.proofs import Differs, Pair
from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.support.texts import Text
from benchmarks.support.timing import summary
from vocabularies.builtin import BUILTINS

CACHES = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH")


def text() -> Text:
    """Return the text that is encoded."""
    data = np.frombuffer(TEXT.encode(), np.uint8)
    offsets = np.array([0, len(data)])
    return Text("first answer", data, offsets, offsets)


def _built_in(session: Session) -> list[Published]:
    return [timed for timed in session.main_vocabularies if timed.name in BUILTINS]


def pairs(session: Session) -> list[Pair]:
    """List the first answers."""
    first_text = text()
    return [(timed, first_text) for timed in _built_in(session)]


def time_starts(session: Session) -> list[Row]:
    """Start each vocabulary with warm and with empty caches of compiled kernels."""
    rows: list[Row] = []
    for timed in _built_in(session):
        kinds = zip(("cached", "compiled"), session.sizes.num_starts, strict=True)
        for kernels, count in kinds:
            starts = [_start(session, timed, kernels == "compiled") for _ in range(count)]
            if starts:
                seconds = summary([start["ids"] for start in starts])
                row: Row = {"vocabulary": timed.name, "kernels": kernels, "seconds": seconds}
                rows.append(row | {"steps_s": starts[-1]})
                median = f"{seconds['median_s']:.2f} s"
                session.log(f"{timed.name}: first answer, kernels {kernels}: {median}")
    return rows


def _start(session: Session, timed: Published, empty: bool) -> dict[str, float]:
    """Time each step of a fresh process, whose answer is proved."""
    command = [sys.executable, "-m", "benchmarks.engine.first_call", timed.name]
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        caches = dict.fromkeys(CACHES, folder) if empty else {}
        begin = time()
        done = subprocess.run(
            [*command, *(["--emulate"] if session.emulate else [])],
            cwd=Path(__file__).parents[3],
            env=os.environ | caches,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    given = json.loads(done.stdout)
    try:
        session.proofs.require(timed, text(), np.array(given["ids"], np.int32))
    except Differs as error:
        raise Differs(f"a fresh process: {error}") from error
    return {name: at - begin for name, at in given["steps"].items()}


STARTS = Block(pairs, time_starts)
