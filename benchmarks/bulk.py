"""Corpora of many megabytes: kernels alone, and from host memory to ids, beside plain copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.gpu_ways import Way
from benchmarks.proofs import Pair
from benchmarks.published import Published
from benchmarks.session import Block, Row, Session
from benchmarks.texts import Bytes, Text
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
    largest = max(len(text.data) for text in session.chosen_corpora)
    out = gpu.device.allocate_pinned(4 * largest)
    for text in session.chosen_corpora:
        pinned = gpu.pinned(text.data)
        for timed in session.vocabularies.values():
            rows += _host_of(session, text, timed, pinned, out)
    return rows


def _host_of(
    session: Session, text: Text, timed: Published, pinned: Bytes, out: Bytes
) -> list[Row]:
    gpu, vocabulary = session.gpu, timed.vocabulary
    called: list[Any] = []

    def call() -> None:
        called.clear()
        called.append(gpu.encode(vocabulary, text.data, text.offsets)[0])

    ways = gpu.to_pinned(vocabulary, pinned, text.offsets, out) | {CALL: Way(call, called.pop)}
    with (
        gpu.to_device(vocabulary, pinned, text.offsets) as on_device,
        gpu.copies(pinned) as copies,
    ):
        ways[ON_DEVICE] = on_device
        runs = {name: clocked(way.run) for name, way in ways.items()}
        samples = take_turns(runs | copies, session.sizes.rounds, warmups=2)
        for way in ways.values():
            out.fill(POISON)
            way.run()
            session.proofs.require(timed, text, way.ids())
    rates = {name: per_second(len(text.data), samples[name]) for name in copies}
    rows: list[Row] = []
    for name in ways:
        row: Row = {"way": name} | _row(text, timed, samples[name]) | {"copies_gb_per_s": rates}
        rows.append(row | {"copy_ratio": row["gb_per_s"] / rates[COPY]})
    told = ", ".join(f"{row['way']} {row['gb_per_s']:.1f}" for row in rows)
    session.log(f"{text.name} {timed.name}: copy {rates[COPY]:.1f}, pinned to {told} GB/s")
    return rows


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
