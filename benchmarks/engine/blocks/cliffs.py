"""Times texts that might take a slow path: one pretoken of megabytes, alone and among others."""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np

from benchmarks.engine.blocks.session import Block, Row, Session
from benchmarks.engine.references.proofs import Pair
from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.support.corpora import cliffs
from benchmarks.support.texts import Text, cut_rows, one_row
from benchmarks.support.timing import clocked, per_second, summary, take_turns

CORPUS = "english"
NUM_ROWS, ROW_BYTES = 1_024, 2_000


def alone(session: Session) -> list[Text]:
    """Make a batch of each slow text."""
    return [
        one_row(name, data)
        for size in session.sizes.cliff_bytes
        for name, data in cliffs(size).items()
    ]


def usual(session: Session) -> Text:
    """Make a batch of English."""
    num_rows = min(NUM_ROWS, session.sizes.corpus_bytes // ROW_BYTES)
    return cut_rows("batch", session.corpus(CORPUS).data, num_rows, ROW_BYTES)


def odd(session: Session) -> list[Text]:
    """Make the batch with a slow text in its middle."""
    batch, texts = usual(session), []
    middle = len(batch.offsets) // 2
    place = int(batch.offsets[middle])
    for size in session.sizes.odd_bytes:
        for name, data in cliffs(size).items():
            joined = np.concatenate((batch.data[:place], data, batch.data[place:]))
            moved = batch.offsets[middle:] + size
            offsets = np.concatenate((batch.offsets[: middle + 1], moved))
            texts.append(Text(f"batch with {size:,} B of {name}", joined, offsets, offsets))
    return texts


def pairs(session: Session) -> list[Pair]:
    """List all vocabularies on all of these texts."""
    texts = [*alone(session), usual(session), *odd(session)]
    return [(timed, text) for timed in session.vocabularies.values() for text in texts]


def time_cliffs(session: Session) -> list[Row]:
    """Measure GB/s of each text alone, and the slowdown of a batch that holds it."""
    rows: list[Row] = []
    for timed in session.vocabularies.values():
        rows += [_alone(session, timed, text) for text in alone(session)]
        rows += _in_batch(session, timed)
    return rows


def _alone(session: Session, timed: Published, text: Text) -> Row:
    gpu, vocabulary = session.gpu, timed.vocabulary
    with gpu.kernels(vocabulary, text.data, text.offsets) as kernels:
        kernels.run()
        session.proofs.require(timed, text, kernels.ids())
        call = clocked(lambda: gpu.encode(vocabulary, text.data, text.offsets))
        runs = {"kernels": kernels.run, "call": call}
        samples = take_turns(runs, session.sizes.rounds)
    rates = {name: per_second(len(text.data), seconds) for name, seconds in samples.items()}
    figures = f"kernels {rates['kernels']:.1f}, call {rates['call']:.1f}"
    session.log(f"{len(text.data):,} B of {text.name}, {timed.name}: {figures} GB/s")
    return {
        "text": text.name,
        "vocabulary": timed.name,
        "bytes": len(text.data),
        "gb_per_s": rates["kernels"],
        "seconds": summary(samples["kernels"]),
        "call": {"gb_per_s": rates["call"], "seconds": summary(samples["call"])},
    }


def _in_batch(session: Session, timed: Published) -> list[Row]:
    gpu, vocabulary, runs = session.gpu, timed.vocabulary, {}
    batch, texts = usual(session), odd(session)
    for text in (batch, *texts):
        ids, _ = gpu.encode(vocabulary, text.data, text.offsets)
        session.proofs.require(timed, text, ids)
        runs[text.name] = clocked(partial(gpu.encode, vocabulary, text.data, text.offsets))
    sizes = session.sizes
    samples = take_turns(runs, sizes.rounds, sizes.slice_s)
    without = statistics.median(samples[batch.name])
    rows: list[Row] = []
    for text in texts:
        seconds = samples[text.name]
        row = {"text": text.name, "vocabulary": timed.name, "bytes": len(text.data)}
        row |= {"seconds": summary(seconds), "without": summary(samples[batch.name])}
        rows.append(row | {"times_without": statistics.median(seconds) / without})
    figures = ", ".join(f"{row['text']} {row['times_without']:.2f}" for row in rows)
    session.log(f"{timed.name}: {figures} times the batch alone")
    return rows


CLIFFS = Block(pairs, time_cliffs)
