"""Corpora of many megabytes: kernels alone, and from host memory to ids, beside plain copies.

A stream is a corpus again and again, whose ids are the proved ones as often.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.gpu_ways import Ids
from benchmarks.proofs import Differs, Pair
from benchmarks.published import Published
from benchmarks.session import Block, Row, Session
from benchmarks.texts import Bytes, Text, repeated
from benchmarks.timing import Seconds, clocked, per_second, summary, take_turns

__all__ = ["HOST", "KERNELS"]

ON_DEVICE, CALL, COPY = "on_device", "call", "host_to_device"
POISON = 0xFF  # Of no vocabulary's id; what a way does not write is seen.


def every_pair(session: Session) -> list[Pair]:
    """All vocabularies on all corpora."""
    return [
        (timed, text) for text in session.chosen_corpora for timed in session.vocabularies.values()
    ]


def time_kernels(session: Session) -> list[Row]:
    """Text on the device to ids on the device, the vocabulary's tables there and no memo."""
    return [row for text in session.chosen_corpora for row in _kernels_of(session, text)]


def _kernels_of(session: Session, text: Text) -> Iterator[Row]:
    gpu, pinned = session.gpu, session.gpu.pinned(text.data)
    for timed in session.vocabularies.values():
        with gpu.kernels(timed.vocabulary, pinned, text.offsets) as kernels:
            samples = take_turns({"kernels": kernels.run}, session.sizes.rounds, warmups=3)
            session.proofs.require(timed, text, kernels.ids())
        row = _row(text, timed, samples["kernels"])
        session.log(f"{text.name} {timed.name}: kernels {row['gb_per_s']:.1f} GB/s")
        yield row


def time_host(session: Session) -> list[Row]:
    """Pinned text to ids on the device and in pinned memory; and the call on ordinary memory."""
    gpu, rows = session.gpu, []
    texts = [(text, _stream_of(session, text)) for text in session.chosen_corpora]
    out = gpu.device.allocate_pinned(4 * max(len(stream.data) for _, stream in texts))
    for text, stream in texts:
        pinned = gpu.pinned(stream.data)
        for timed in session.vocabularies.values():
            rows += _host_of(session, text, stream, timed, pinned, out)
        gpu.device.free_pinned(pinned)
    gpu.device.free_pinned(out)
    return rows


def _stream_of(session: Session, text: Text) -> Text:
    return repeated(text, max(1, session.sizes.stream_bytes // len(text.data)))


def _host_of(
    session: Session, text: Text, stream: Text, timed: Published, pinned: Bytes, out: Bytes
) -> list[Row]:
    gpu, vocabulary = session.gpu, timed.vocabulary
    called: list[Any] = []

    def call() -> None:
        called.clear()
        called.append(gpu.encode(vocabulary, text.data, text.offsets)[0])

    ways = gpu.to_pinned(vocabulary, pinned, stream.offsets, out)
    with (
        gpu.to_device(vocabulary, pinned, stream.offsets) as on_device,
        gpu.copies(pinned) as copies,
    ):
        ways[ON_DEVICE] = on_device
        runs = {name: clocked(way.run) for name, way in ways.items()} | {CALL: clocked(call)}
        samples = take_turns(runs | copies, session.sizes.rounds, warmups=2)
        session.proofs.require(timed, text, called.pop())
        for way in ways.values():
            out.fill(POISON)
            way.run()
            _require_each(session, timed, text, way.ids(), len(pinned) // len(text.data))
    rates = {name: per_second(len(pinned), samples[name]) for name in copies}
    rows: list[Row] = []
    for name in runs:
        row = _row(text if name == CALL else stream, timed, samples[name])
        row |= {"way": name, "copies_gb_per_s": rates}
        rows.append(row | {"copy_ratio": row["gb_per_s"] / rates[COPY]})
    told = ", ".join(f"{row['way']} {row['gb_per_s']:.1f}" for row in rows)
    session.log(f"{text.name} {timed.name}: copy {rates[COPY]:.1f}, pinned to {told} GB/s")
    return rows


def _require_each(session: Session, timed: Published, text: Text, ids: Ids, times: int) -> None:
    """Raises Differs where a stream's ids are not those of its text so many times over."""
    once = ids[: len(ids) // times]
    session.proofs.require(timed, text, once)
    if len(once) * times != len(ids) or (ids.reshape(times, -1) != once).any():
        raise Differs(f"{timed.name} on {text.name}: others in a stream")


def _row(text: Text, timed: Published, samples: Seconds) -> Row:
    return {
        "corpus": text.name,
        "vocabulary": timed.name,
        "bytes": len(text.data),
        "gb_per_s": per_second(len(text.data), samples),
        "seconds": summary(samples),
    }


KERNELS = Block(every_pair, time_kernels)
HOST = Block(every_pair, time_host)
