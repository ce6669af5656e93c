"""Corpora of many megabytes: kernels alone, and from host memory to ids, beside plain copies.

A stream is a repeated corpus, whose ids are the proved ids repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.engine.blocks.session import Block, Row, Session
from benchmarks.engine.gpu_calls import Ids
from benchmarks.engine.references.proofs import Differs, Pair
from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.support.texts import Bytes, Int64s, Text, repeated
from benchmarks.support.timing import Run, Seconds, clocked, per_second, summary, take_turns

ON_DEVICE, CALL, COPY = "on_device", "call", "host_to_device"
POISON = 0xFF  # Of no vocabulary's id; what a way does not write is seen.


def every_pair(session: Session) -> list[Pair]:
    """List all vocabularies on all corpora."""
    return [
        (timed, text) for text in session.chosen_corpora for timed in session.vocabularies.values()
    ]


def time_kernels(session: Session) -> list[Row]:
    """Time from text on the device to ids on the device."""
    return [row for text in session.chosen_corpora for row in _kernels_of(session, text)]


def _kernels_of(session: Session, text: Text) -> Iterator[Row]:
    gpu, pinned = session.gpu, session.gpu.pinned(text.data)
    for timed in session.vocabularies.values():
        with gpu.kernels(timed.vocabulary, pinned, text.offsets) as kernels:
            samples = take_turns({"kernels": kernels.run}, session.sizes.rounds, warmups=3)
            session.proofs.require(timed, text, kernels.ids())
        row = _row(len(text.data), text.name, timed, samples["kernels"])
        session.log(f"{text.name} {timed.name}: kernels {row['gb_per_s']:.1f} GB/s")
        yield row


@dataclass(frozen=True, slots=True)
class _Stream:
    """A repeated corpus in pinned memory.

    Attributes:
        once: the corpus, whose ids were compared.
        times: how often `pinned` repeats it.
        pinned: the text.
        offsets: where each row of the stream begins.
        out: pinned memory for its ids as int32.
        copies: plain copies of the same bytes.
    """

    once: Text
    times: int
    pinned: Bytes
    offsets: Int64s
    out: Bytes
    copies: dict[str, Run]


def time_host(session: Session) -> list[Row]:
    """Time from pinned text to ids on the device and in pinned memory, and ordinary calls."""
    return [
        row
        for stream in _streams(session)
        for timed in session.vocabularies.values()
        for row in _host_of(session, stream, timed)
    ]


def _streams(session: Session) -> Iterator[_Stream]:
    """Make a stream of each corpus; pinned memory is taken once, for the longest."""
    gpu, texts = session.gpu, session.chosen_corpora
    times = [max(1, session.sizes.stream_bytes // len(text.data)) for text in texts]
    longest = max((len(text.data) * n for text, n in zip(texts, times, strict=True)), default=0)
    out = gpu.device.allocate_pinned(4 * longest)
    for text, often in zip(texts, times, strict=True):
        stream = repeated(text, often)
        pinned = gpu.pinned(stream.data)
        with gpu.copies(pinned) as copies:
            yield _Stream(text, often, pinned, stream.offsets, out, copies)
        gpu.device.free_pinned(pinned)
    gpu.device.free_pinned(out)


def _host_of(session: Session, stream: _Stream, timed: Published) -> list[Row]:
    gpu, vocabulary, text = session.gpu, timed.vocabulary, stream.once
    pinned, offsets, out = stream.pinned, stream.offsets, stream.out
    called: list[Any] = []

    def call() -> None:
        called.clear()
        called.append(gpu.encode(vocabulary, text.data, text.offsets)[0])

    ways = gpu.to_pinned(vocabulary, pinned, offsets, out)
    with gpu.to_device(vocabulary, pinned, offsets) as on_device:
        ways[ON_DEVICE] = on_device
        runs = {name: clocked(way.run) for name, way in ways.items()} | {CALL: clocked(call)}
        samples = take_turns(runs | stream.copies, session.sizes.rounds, warmups=2)
        once = called.pop()
        session.proofs.require(timed, text, once)
        for way in ways.values():
            out[: stream.times * once.nbytes].fill(POISON)
            way.run()
            _require_each(session, timed, text, way.ids(), stream.times)
    rates = {name: per_second(len(pinned), samples[name]) for name in stream.copies}
    rows: list[Row] = []
    for name in runs:
        row = _row(len(text.data if name == CALL else pinned), text.name, timed, samples[name])
        row |= {"way": name, "copies_gb_per_s": rates}
        rows.append(row | {"copy_ratio": row["gb_per_s"] / rates[COPY]})
    figures = ", ".join(f"{row['way']} {row['gb_per_s']:.1f}" for row in rows)
    session.log(f"{text.name} {timed.name}: copy {rates[COPY]:.1f}, pinned to {figures} GB/s")
    return rows


def _require_each(session: Session, timed: Published, text: Text, ids: Ids, times: int) -> None:
    """Check that the ids of a stream are those of its text, `times` times (else Differs)."""
    once = ids[: len(ids) // times]
    session.proofs.require(timed, text, once)
    if len(once) * times != len(ids) or (ids.reshape(times, -1) != once).any():
        raise Differs(f"{timed.name} on {text.name}: others in a stream")


def _row(num_bytes: int, corpus: str, timed: Published, samples: Seconds) -> Row:
    return {
        "corpus": corpus,
        "vocabulary": timed.name,
        "bytes": num_bytes,
        "gb_per_s": per_second(num_bytes, samples),
        "seconds": summary(samples),
    }


KERNELS = Block(every_pair, time_kernels)
HOST = Block(every_pair, time_host)
