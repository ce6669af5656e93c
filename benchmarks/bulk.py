"""Corpora of many megabytes: kernels alone, and from host memory to ids, beside plain copies."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.gpu_clock import copy_runs
from benchmarks.gpu_runs import Kernels, Way
from benchmarks.proofs import Pair
from benchmarks.session import Block, Row, Session
from benchmarks.texts import Bytes, Text
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.timing import Seconds, clocked, per_second, summary, take_turns

__all__ = ["HOST", "KERNELS"]

MICRO = 1e6
STAGE_ROUNDS = 3
ON_DEVICE, COPY = "on_device", "host_to_device"


def every_pair(session: Session) -> list[Pair]:
    """All vocabularies on all corpora."""
    return [(timed, text) for text in session.corpora for timed in session.vocabularies.values()]


def time_kernels(session: Session) -> list[Row]:
    """Text on the device to ids on the device, the vocabulary's tables there and no memo."""
    return [row for text in session.corpora for row in _kernels_of(session, text)]


def _kernels_of(session: Session, text: Text) -> Iterator[Row]:
    gpu = session.gpu
    pinned = gpu.pinned(text.data)
    with copy_runs(gpu.device, gpu.clock, pinned) as copies:
        for timed in session.vocabularies.values():
            with gpu.kernels(timed.vocabulary, pinned, text.offsets) as kernels:
                kernels.run()
                session.proofs.require(timed, text, kernels.ids())
                rounds = session.sizes.rounds
                samples = take_turns({"kernels": kernels.run} | copies, rounds)
                stages = _stages(kernels)
                session.proofs.require(timed, text, kernels.ids())
            row = _row(text, timed, samples.pop("kernels")) | {"stages_us": stages}
            session.log(f"{text.name} {timed.name}: kernels {row['gb_per_s']:.1f} GB/s")
            yield row | _rates(text, samples)


def _stages(kernels: Kernels) -> dict[str, float]:
    """Median microseconds of each kernel."""
    rounds = [kernels.stages() for _ in range(STAGE_ROUNDS)]
    return {name: MICRO * statistics.median(one[name] for one in rounds) for name in kernels.names}


def time_host(session: Session) -> list[Row]:
    """Pinned text to ids on the device and in pinned memory; and the call on ordinary memory."""
    gpu, rows = session.gpu, []
    largest = max(len(text.data) for text in session.corpora)
    out = gpu.device.allocate_pinned(4 * largest)
    for text in session.corpora:
        pinned = gpu.pinned(text.data)
        for timed in session.vocabularies.values():
            rows += _host_of(session, text, timed, pinned, out)
    return rows


def _host_of(
    session: Session, text: Text, timed: TimedVocabulary, pinned: Bytes, out: Bytes
) -> list[Row]:
    gpu, vocabulary = session.gpu, timed.vocabulary
    called: list[object] = []

    def call() -> None:
        called[:] = [gpu.encode(vocabulary, text.data, text.offsets)[0]]

    ways = gpu.host_ways(vocabulary, pinned, text.offsets, out)
    ways["call"] = Way(call, lambda: called[0])  # type: ignore[arg-type,return-value]
    with (
        gpu.device_way(vocabulary, pinned, text.offsets) as on_device,
        copy_runs(gpu.device, gpu.clock, pinned) as copies,
    ):
        ways[ON_DEVICE] = on_device
        for way in ways.values():
            way.run()
            session.proofs.require(timed, text, way.ids())
        runs = {name: clocked(way.run) for name, way in ways.items()}
        samples = take_turns(runs | copies, session.sizes.rounds, warmups=2)
    rates = _rates(text, {name: samples[name] for name in copies})
    rows: list[Row] = []
    for name in ways:
        row: Row = {"way": name} | _row(text, timed, samples[name]) | rates
        row["copy_ratio"] = row["gb_per_s"] / row["copies_gb_per_s"][COPY]
        rows.append(row)
    told = ", ".join(f"{row['way']} {row['gb_per_s']:.1f}" for row in rows)
    session.log(f"{text.name} {timed.name}: pinned to {told} GB/s")
    return rows


def _row(text: Text, timed: TimedVocabulary, samples: Seconds) -> Row:
    return {
        "corpus": text.name,
        "vocabulary": timed.name,
        "bytes": len(text.data),
        "gb_per_s": per_second(len(text.data), samples),
        "seconds": summary(samples),
    }


def _rates(text: Text, samples: dict[str, Seconds]) -> Row:
    rates = {name: per_second(len(text.data), taken) for name, taken in samples.items()}
    return {"copies_gb_per_s": rates}


KERNELS = Block(every_pair, time_kernels)
HOST = Block(every_pair, time_host)
