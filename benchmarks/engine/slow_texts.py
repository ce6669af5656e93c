"""Times texts made to be slow; reports those under 5 GB/s and their slowest kernels.

    python -m benchmarks.engine.slow_texts --data FOLDER --out FILE.json

Device to device, one row, medians; the ids of the front of each text are tiktoken's before it is
timed, and so are all ids of the slowest. A digest of all ids lets two commits be compared. Texts
that are too slow at the first size are tried at the next one.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.gpu_calls import GpuWays, Kernels
from benchmarks.engine.references.published_vocabularies import Published, read_published
from benchmarks.engine.references.reference_libraries import ids_digest, reference_ids
from benchmarks.engine.slow_families import slow_texts
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.texts import Text
from benchmarks.support.timing import per_second
from gpu.batch.transfer import fetch, launch_each
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device

SLOW_BELOW = 5.0  # GB/s.
FRONT = 12_000  # Bytes whose ids are tiktoken's; all of them for the slowest.
SLOWEST, PROVED, ROUNDS = 12, 2, 3
COUNTERS = ("pieces", "windows", "whole", "whole_bytes")


def prove(ways: GpuWays, published: Published, text: Text) -> None:
    """Check that the ids are those of the reference library.

    Raises:
        SystemExit: they are not.
    """
    content, places = text.data.tobytes(), text.offsets.tolist()
    rows = [content[a:b].decode() for a, b in itertools.pairwise(places)]
    library, ids = reference_ids(published.files, rows)
    with ways.kernels(published.vocabulary, text.data, text.offsets) as kernels:
        kernels.run()
        if ids_digest(kernels.ids()) != ids_digest(np.concatenate(ids)):
            raise SystemExit(f"{published.name}: {library} has other ids for {text.name}")


def counters(kernels: Kernels) -> dict[str, int]:
    """Return the counters of splitting, by name."""
    counts = fetch(kernels.workspace, "window_counts", np.uint64, 2).tolist()
    found = (number for count in counts for number in (count >> 40, count & (1 << 40) - 1))
    return dict(zip(COUNTERS, found, strict=True))


def times_of_kernels(ways: GpuWays, kernels: Kernels) -> dict[str, float]:
    """Measure the microseconds of each kernel with its launch; leave out kernels below 8 µs."""
    workspace, clock = kernels.workspace, ways.clock
    stream, job = workspace.stream, workspace.job[0]
    stream.clear(workspace.fields["status"], 8 * int(job["num_cleared"]))
    marks = [clock.mark(stream)]
    for name in kernels.names:
        launch_each(workspace, (name,), kernels.processors)
        marks.append(clock.mark(stream))
    stream.synchronize()
    spans = zip(kernels.names, marks, marks[1:], strict=False)
    times = {name: 1e6 * clock.seconds(begin, end) for name, begin, end in spans}
    return {name: round(us, 1) for name, us in times.items() if us >= 8}


def hunt(ways: GpuWays, published: Published, size: int, names: Sequence[str] = ()) -> list[Any]:
    """Time each text of this size, or those named; return a row of results for each."""
    rows: list[Any] = []
    tokens = [token for token in published.vocabulary.tokens if token]
    fronts = {text.name: text for text in slow_texts(FRONT, tokens, names)}
    for text in slow_texts(size, tokens, names):
        prove(ways, published, fronts[text.name])
        with ways.kernels(published.vocabulary, text.data, text.offsets) as kernels:
            kernels.run()
            digest, counted = ids_digest(kernels.ids()), counters(kernels)
            kernels.run()
            rate = per_second(len(text.data), [kernels.run() for _ in range(ROUNDS)])
            row = {"text": text.name, "vocabulary": published.name, "bytes": len(text.data)}
            row |= {"gb_per_s": round(rate, 2), "ids_sha256": digest, "counters": counted}
            if rate < SLOW_BELOW:
                row["kernels_us"] = times_of_kernels(ways, kernels)
        rows.append(row)
    if not names:
        slowest = sorted(rows, key=lambda row: row["gb_per_s"])[:PROVED]
        for text in slow_texts(size, tokens, [row["text"] for row in slowest]):
            prove(ways, published, text)
    return rows


def print_rows(rows: list[Any]) -> None:
    """Print the slowest texts, and the kernels in which slow texts spend their time."""
    slow = [row for row in rows if row["gb_per_s"] < SLOW_BELOW]
    first = rows[0]
    count = f"{len(slow)} of {len(rows)} under {SLOW_BELOW}"
    print(f"{first['vocabulary']}, {first['bytes']:,} B: {count}")
    for row in sorted(rows, key=lambda row: row["gb_per_s"])[:SLOWEST]:
        top = sorted(row.get("kernels_us", {}).items(), key=lambda item: -item[1])[:5]
        print(
            f"  {row['gb_per_s']:5.2f} {row['text'][:44]:44}", *(f"{n} {us:.0f}" for n, us in top)
        )
    names = sorted({name for row in slow for name in row["kernels_us"]})
    means = {n: statistics.mean(row["kernels_us"].get(n, 0) for row in slow) for n in names}
    print("  means of the slow:", *(f"{n} {us:.0f}" for n, us in means.items() if us >= 3))
    digest = hashlib.sha256("".join(row["ids_sha256"] for row in rows).encode()).hexdigest()
    print(f"  digest of all ids {digest[:16]}", flush=True)


def run(device: Device, data: Path, names: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    """Time all texts of the vocabularies; larger sizes only of those that were slow."""
    rows: list[Any] = []
    ways = GpuWays(device, 20 << 30)
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            published = read_published(name, data, Path(scratch))
            slow_names: list[str] = []
            for size in sizes:
                found = hunt(ways, published, size, slow_names)
                print_rows(found)
                rows += found
                slow_names = [row["text"] for row in found if row["gb_per_s"] < SLOW_BELOW]
                if not slow_names:
                    break
    ways.engine.close()
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabularies", nargs="+", default=["cl100k_base", "o200k_base"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1 << 20, 16 << 20])
    given = parser.parse_args()
    device = CudaDevice()
    rows = run(device, given.data, given.vocabularies, given.sizes)
    facts = machine(("tiktoken", "numpy")) | device_facts(device.info)
    given.out.write_text(json.dumps({"machine": facts, "slow_texts": rows}, indent=1))


if __name__ == "__main__":
    main()
