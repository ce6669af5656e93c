"""What one GPU does with text: proves the ids equal to tiktoken's, then times.

    python -m benchmarks.device --data FOLDER --out FILE.json

FOLDER holds `text/`. Text and ids are on the device for the figures of kernels, in pinned host
memory for those of streams, in ordinary memory for those of calls; the copy rate of the same bytes
is measured beside them in the same run. No memo, so that a first call is as fast as any.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.corpora import cliffs, make_corpus
from benchmarks.texts import Bytes, cut_rows
from benchmarks.timing import clocked, summary, take_turns
from gpu.chunks import chunks_of
from gpu.device import CudaDevice, DeviceUnavailable
from gpu.engine import GpuEngine
from gpu.families import encode_kernels
from gpu.launches import STATUS, launch, pack_rows, status_of
from gpu.streams import encode_packed, encode_stream
from vocabularies.batch import Batch
from vocabularies.builtin import load
from vocabularies.pretokenizers import PRETOKENIZERS
from vocabularies.vocabulary import Vocabulary

NAMES = ("gpt2", "cl100k_base", "o200k_base")
CORPORA = ("english", "code", "languages", "runs", "hostile")
SHAPES = ((1, 200), (64, 1000), (1024, 2000), (256, 8000), (65_536, 512), (1, 100_000_000))
MEGABYTE = 1 << 20
PROVED_BYTES, PROVED_CHUNK = 8 * MEGABYTE, 1 << 16
CLIFF_BYTES = 10 * MEGABYTE
GIGA = 1e9
ROUNDS = 9


def prove(engine: GpuEngine, vocabulary: Vocabulary, data: Bytes) -> int:
    """Compare the ids with tiktoken's on the first megabytes; returns how many bytes that were.

    Raises:
        SystemExit: they differ.
    """
    import tiktoken

    special = {token.content: token.id for token in vocabulary.special_tokens}
    ranks = {
        token: i
        for i, token in enumerate(vocabulary.tokens)
        if token is not None and i not in special.values()
    }
    pattern = PRETOKENIZERS[vocabulary.pretokenizer].tiktoken_pattern
    assert pattern is not None
    witness = tiktoken.Encoding(
        "witness", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
    )
    whole = np.array([0, len(data)])
    chunks = [c for c in chunks_of(data, whole, vocabulary, PROVED_CHUNK) if c.end <= PROVED_BYTES]
    texts = [data[c.begin : c.end].tobytes().decode() for c in chunks]
    ids = np.concatenate(witness.encode_ordinary_batch(texts)).astype(np.int32)
    got, _ = engine.encode_ids(vocabulary, data[: chunks[-1].end], np.array([0, chunks[-1].end]))
    if got.tolist() != ids.tolist():
        raise SystemExit("the ids differ from tiktoken's: nothing is timed")
    return chunks[-1].end


def kernel_seconds(engine: GpuEngine, vocabulary: Vocabulary, data: Bytes) -> tuple[Any, int]:
    """Seconds of each run from text on the device to ids on the device, and the number of ids."""
    import cupy

    samples = []
    with engine.residents.using(vocabulary) as resident:
        workspace = engine.workspaces.take(len(data), 1)
        pack_rows(workspace, resident, data, np.array([0, len(data)]), engine.processors)
        kernels, stream = (
            encode_kernels(resident.family, num_rounds=resident.num_rounds),
            workspace.stream,
        )
        for _ in range(ROUNDS + 3):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream.stream)
            stream.clear(workspace.fields["status"], 8 * int(workspace.job[0]["num_cleared"]))
            launch(workspace, kernels, engine.processors)
            end.record(stream.stream)
            stream.synchronize()
            samples.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
        num_ids = int(status_of(workspace)[STATUS["NUM_IDS"]])
        engine.workspaces.give(workspace)
    return summary(samples[3:]), num_ids


def copy_seconds(device: CudaDevice, pinned: Bytes) -> Any:
    """Seconds of a copy of the same bytes to the device."""
    address, stream = device.allocate(len(pinned)), device.stream()

    def copy() -> None:
        stream.copy_in(address, pinned.ctypes.data, len(pinned))
        stream.synchronize()

    samples = take_turns({"copy": clocked(copy)}, ROUNDS)["copy"]
    device.free(address)
    return summary(samples)


def streams(
    engine: GpuEngine, vocabulary: Vocabulary, pinned: Bytes, out: Bytes
) -> dict[str, Callable[[], object]]:
    """Ways from pinned host text to ids in pinned host memory, by their name."""
    whole, chunk = np.array([0, len(pinned)]), 32 * MEGABYTE
    settings = {"chunk_bytes": chunk, "in_flight": 4}
    ways: dict[str, Callable[[], object]] = {
        "int32": lambda: encode_stream(
            engine, vocabulary, pinned, whole, out.view(np.int32), **settings
        ),
        "packed": lambda: encode_packed(
            engine, vocabulary, pinned, whole, out.view(np.uint32), **settings
        ),
    }
    if len(vocabulary) <= 1 << 16:
        ways["uint16"] = lambda: encode_stream(
            engine, vocabulary, pinned, whole, out.view(np.uint16), **settings
        )
    return ways


def bulk(engine: GpuEngine, device: CudaDevice, folder: Path, size: int) -> Iterator[Any]:
    """A result for each corpus and vocabulary."""
    out = device.allocate_pinned(4 * size)
    for name in CORPORA:
        corpus = make_corpus(name, folder, size)
        pinned = device.allocate_pinned(len(corpus.data))
        pinned[:] = corpus.data
        copy = copy_seconds(device, pinned)
        for vocabulary_name in NAMES:
            vocabulary = load(vocabulary_name)
            proved = prove(engine, vocabulary, pinned)
            kernels, num_ids = kernel_seconds(engine, vocabulary, pinned)
            ways = streams(engine, vocabulary, pinned, out)
            runs = take_turns({way: clocked(run) for way, run in ways.items()}, 5, warmups=3)
            yield {
                "corpus": name,
                "digest": corpus.digest,
                "vocabulary": vocabulary_name,
                "num_bytes": len(pinned),
                "num_ids": num_ids,
                "proved_bytes": proved,
                "copy": copy,
                "device_to_device": kernels,
                "pinned_to_pinned": {way: summary(samples) for way, samples in runs.items()},
            }


def calls(engine: GpuEngine, folder: Path) -> Iterator[Any]:
    """The public call, packed bytes in and an array out, in shapes of batches."""
    vocabulary = load("gpt2")
    for rows, row_bytes in SHAPES:
        data = make_corpus("english", folder, rows * row_bytes + MEGABYTE).data
        text = cut_rows("rows", data, rows, row_bytes)
        batch = Batch(data=text.data, offsets=text.offsets)
        assert not engine.encode(vocabulary, batch).errors
        begin = perf_counter()
        engine.encode(vocabulary, batch)
        rounds = 200 if perf_counter() - begin < 1e-2 else 10
        work = clocked(lambda batch=batch: engine.encode(vocabulary, batch))
        samples = take_turns({"encode": work}, rounds, warmups=5)["encode"]
        yield {"rows": rows, "row_bytes": row_bytes, **summary(samples)}


def main() -> None:
    """Prove, time, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, default=512)
    arguments = parser.parse_args()
    try:
        device = CudaDevice()
    except DeviceUnavailable as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    engine = GpuEngine(device, 100 << 30)
    results: dict[str, Any] = {"bulk": [], "cliffs": [], "calls": []}
    for row in bulk(engine, device, arguments.data, arguments.megabytes * MEGABYTE):
        results["bulk"].append(row)
        rates = {
            way: f"{row['num_bytes'] / seconds['median_s'] / GIGA:.1f}"
            for way, seconds in row["pinned_to_pinned"].items()
        }
        rate = row["num_bytes"] / row["device_to_device"]["median_s"] / GIGA
        copy = row["num_bytes"] / row["copy"]["median_s"] / GIGA
        print(f"{row['corpus']:10} {row['vocabulary']:12} {rate:6.1f} GB/s, copy {copy:.1f}", rates)
    for name, data in cliffs(CLIFF_BYTES).items():
        for vocabulary_name in NAMES:
            seconds, _ = kernel_seconds(engine, load(vocabulary_name), data)
            results["cliffs"].append({"text": name, "vocabulary": vocabulary_name, **seconds})
            rate = CLIFF_BYTES / seconds["median_s"] / GIGA
            print(f"{name:14} {vocabulary_name:12} {rate:6.1f} GB/s")
    for row in calls(engine, arguments.data):
        results["calls"].append(row)
        print(f"{row['rows']} x {row['row_bytes']} B: {row['median_s'] * 1e6:.1f} us")
    results["machine"] = _machine(device)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def _machine(device: CudaDevice) -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    versions = {"numpy": np.__version__, "python": platform.python_version()}
    import cupy
    import tiktoken

    versions |= {"cupy": cupy.__version__, "tiktoken": tiktoken.__version__}
    return {
        "device": device.info.name,
        "driver": device.info.driver,
        "versions": versions,
        "commit": commit.stdout.strip() or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m benchmarks.device --data FOLDER --out FILE.json",
    }


if __name__ == "__main__":
    main()
