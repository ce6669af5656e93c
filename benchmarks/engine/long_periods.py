"""Times texts of a long period with tokens of the same period, whose pieces are merged whole.

    python -m benchmarks.engine.long_periods --out FILE.json

Medians from device to device, with one row. The period is random printable bytes. The vocabulary
merges it from halves, as training does, or letter by letter, with a round for each, and has tokens
of 2, 4 and 8 periods. All ids are those of `tokenizers` before a text is timed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.engine.references.reference_libraries import ids_digest
from benchmarks.engine.slow_texts import counters, times_of_kernels
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.texts import Text, one_row
from benchmarks.support.timing import summary
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

PERIODS = (165, 200, 300, 700)
SIZES = (1 << 16, 1 << 20, 10 << 20)
TIMES, ROUNDS = 3, 5
PRINTABLE = range(33, 127)
Merges = list[tuple[bytes, bytes]]


def of_letters(unit: bytes) -> Merges:
    """Make merges that each add a letter."""
    return [(unit[:i], unit[i : i + 1]) for i in range(1, len(unit))]


def of_halves(unit: bytes) -> Merges:
    """Make merges of two halves each, short ones first."""
    made: dict[tuple[bytes, bytes], None] = {}

    def make(part: bytes) -> None:
        if len(part) > 1:
            halves = part[: len(part) // 2], part[len(part) // 2 :]
            for half in halves:
                make(half)
            made.setdefault(halves)

    make(unit)
    return sorted(made, key=lambda halves: len(halves[0] + halves[1]))


WAYS = {"halves": of_halves, "letters": of_letters}


def vocabulary_of(unit: bytes, way: str) -> tuple[Vocabulary, Tokenizer]:
    """Make the vocabulary, and the same merges in `tokenizers`."""
    merges = WAYS[way](unit) + [(unit * 2**i, unit * 2**i) for i in range(TIMES)]
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += dict.fromkeys(left + right for left, right in merges)
    ids = {token: number for number, token in enumerate(tokens)}
    pairs = tuple((ids[left], ids[right]) for left, right in merges)
    spelled = {token.decode("latin-1"): number for token, number in ids.items()}
    model = models.BPE(spelled, [(left.decode(), right.decode()) for left, right in merges])
    return Vocabulary(tuple(tokens), Bpe(pairs), pretokenizer="none"), Tokenizer(model)


def row_of(
    ways: GpuWays, text: Text, vocabulary: Vocabulary, reference: Tokenizer
) -> dict[str, Any]:
    """Compare the ids of one text and time it.

    Raises:
        SystemExit: an id differs.
    """
    ids = np.array(reference.encode(text.data.tobytes().decode()).ids, np.int32)
    with ways.kernels(vocabulary, text.data, text.offsets) as kernels:
        kernels.run()
        if ids_digest(kernels.ids()) != ids_digest(ids):
            raise SystemExit(f"tokenizers has other ids for {text.name}")
        counted = counters(kernels)
        seconds = summary([kernels.run() for _ in range(ROUNDS)])
        last = times_of_kernels(ways, kernels).get("last_pieces", 0.0)
    row = {"text": text.name, "bytes": len(text.data), "num_ids": len(ids)}
    return row | {"seconds": seconds, "last_pieces_us": last, "counters": counted}


def run(device: Device, periods: Sequence[int], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure all texts."""
    rows = []
    ways = GpuWays(device, 20 << 30)
    for period in periods:
        unit = bytes(random.Random(period).choices(PRINTABLE, k=period))
        for way in WAYS:
            vocabulary, reference = vocabulary_of(unit, way)
            for size in sizes:
                data = np.resize(np.frombuffer(unit, np.uint8), size)
                text = one_row(f"period of {period}, of {way}", data)
                rows.append(row := row_of(ways, text, vocabulary, reference))
                us, count = 1e6 * row["seconds"]["median_s"], row["counters"]
                rate = f"{size / us / 1e3:6.3f} GB/s, {count['whole']} pieces merged whole"
                print(f"{text.name:26} {size:9,} B {us:9.0f} us {rate}", flush=True)
    ways.engine.close()
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    device = CudaDevice()
    rows = run(device, PERIODS, SIZES)
    facts = machine(("tokenizers", "numpy")) | device_facts(device.info)
    given.out.write_text(json.dumps({"machine": facts, "long_periods": rows}, indent=1))


if __name__ == "__main__":
    main()
