"""Seconds from a process's start to its first exact answer, the kernels compiled before or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import time

import numpy as np

from benchmarks.first_answer import TEXT
from benchmarks.proofs import Differs, Pair
from benchmarks.session import Block, Row, Session
from benchmarks.texts import Text
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.timing import summary

__all__ = ["STARTS"]

MAIN = ("gpt2", "cl100k_base")
NUM_COLD = 2
CACHES = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH")


def text() -> Text:
    """What is asked."""
    data = np.frombuffer(TEXT.encode(), np.uint8)
    offsets = np.array([0, len(data)])
    return Text("first answer", data, offsets, offsets)


def _timed(session: Session) -> list[TimedVocabulary]:
    return [timed for timed in session.main_vocabularies if timed.name in MAIN]


def pairs(session: Session) -> list[Pair]:
    """The first answers."""
    asked = text()
    return [(timed, asked) for timed in _timed(session)]


def time_starts(session: Session) -> list[Row]:
    """For each vocabulary, with warm and with empty caches."""
    rows: list[Row] = []
    for timed in _timed(session):
        for kernels, count in (("cached", session.sizes.num_starts), ("compiled", NUM_COLD)):
            starts = [_start(session, timed, kernels == "compiled") for _ in range(count)]
            samples = [start["ids"] for start in starts]
            rows.append(
                {
                    "vocabulary": timed.name,
                    "kernels": kernels,
                    "seconds": summary(samples),
                    "steps_s": starts[-1],
                }
            )
            session.log(f"start, {timed.name}, kernels {kernels}: {min(samples):.2f} s at best")
    return rows


def _start(session: Session, timed: TimedVocabulary, empty: bool) -> dict[str, float]:
    """Seconds to each step of a fresh process, whose answer is proved."""
    with tempfile.TemporaryDirectory(dir=session.witnesses.folder) as folder:
        caches = dict.fromkeys(CACHES, folder) if empty else {}
        begin = time()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.first_answer", timed.name],
            cwd=Path(__file__).parents[1],
            env=os.environ | caches,
            capture_output=True,
            text=True,
            check=True,
        )
    given = json.loads(done.stdout)
    ids = np.array(given["ids"], np.int32)
    try:
        session.proofs.require(timed, text(), ids)
    except Differs as error:
        raise Differs(f"a fresh process: {error}") from error
    return {name: at - begin for name, at in given["steps"].items()}


STARTS = Block(pairs, time_starts)
