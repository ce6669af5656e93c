"""Hunts for kernels that write outside their fields: `python -m tests.fuzz.kernels --minutes 10`.

Batches of odd shapes on the emulated device with redzones, beside the CPU engine. It sees the more
under sanitizers (slower by half; what they report goes to stderr, once a place):

    export LD_PRELOAD="$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libstdc++.so)"
    export ASAN_OPTIONS=detect_leaks=0:halt_on_error=0
    export WARPTOK_EMULATION_FLAGS="-O1 -g -fsanitize=address -fsanitize-recover=address"

Prints a line for each difference and ends with status 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

import numpy as np

from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from service.engines.cpu.engine import CpuEngine
from tests.fuzz.texts import nasty_text, strings
from tests.support.each_device import limit_fused
from tests.support.emulation.redzones import redzones
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions
from vocabularies.builtin import BUILTINS, load
from vocabularies.model.vocabulary import Vocabulary

BORDERS = (
    1,
    2,
    4,
    13,
    16,
    17,
    31,
    32,
    63,
    64,
    65,
    128,
    129,
    159,
    160,
    192,
    255,
    256,
    257,
    319,
    320,
)
BORDERS += (511, 512, 513, 768, 769, 1023, 1024, 1218, 1335, 2048, 4095, 4096, 4097, 8191, 8192)
RUNS = [".", " ", "a", "\n", "-", "0", "é", "中", "😀", "A", "C", "N"]


def _size(rng: Random, most: int) -> int:
    return min(most, max(0, rng.choice(BORDERS) + rng.choice([0, 0, 0, -1, 1, 16])))


def _piece(rng: Random, vocabulary: Vocabulary, size: int) -> str:
    """Make about so many bytes of runs, repeats, letters, tokens, special tokens or odd texts."""
    letters = "ACGT" if vocabulary.supports_reverse_complement else "ab cdefgh"
    some = strings(vocabulary, rng) or [letters]
    unit = {
        0: rng.choice(RUNS),
        1: "".join(rng.choices(letters + "N.\n0", k=rng.randint(2, 40))),
        2: rng.choice([token.content for token in vocabulary.special_tokens] or ["<"]),
        3: nasty_text(rng, some),
    }.get(rng.randrange(8))
    if unit:
        return unit * (size // len(unit) + 1)
    return "".join(rng.choices(some if rng.random() < 0.3 else letters, k=size))


def _row(rng: Random, vocabulary: Vocabulary, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = size if rng.random() < 0.5 else max(1, _size(rng, size))
        content += _piece(rng, vocabulary, part).encode()[: max(4, part)]
    return content[:size].decode(errors="ignore").encode()


def _options(rng: Random, vocabulary: Vocabulary) -> EncodeOptions:
    if rng.random() < 0.5:
        return EncodeOptions(add_special_tokens=False)
    return EncodeOptions(
        rng.random() < 0.5,
        rng.choice(["match", "plain", "refuse"]),
        rng.choice([None, None, 0, 1, 7, 64, 1000]),
        rng.choice(["right", "left"]),
        reverse_complement=vocabulary.supports_reverse_complement and rng.random() < 0.3,
        spans=rng.random() < 0.3,
    )


def batch_of(rng: Random, vocabulary: Vocabulary, most: int) -> Batch:
    """Make rows of at most `most` bytes together, which may begin behind 0 of their array."""
    left = min(most, rng.choice([1, 16, 64, 4095, 4096, 4097, 8191, 8192, most]))
    rows, same = list[bytes](), rng.choice([None, None, 1, 2, 16, 64, rng.randint(500, 1500)])
    run = rng.choice(RUNS).encode() if rng.random() < 0.2 else b""
    while left > 0 and len(rows) < 600:
        size = min(left, same or _size(rng, left))
        rows.append((run * size)[: len(run) * (size // len(run))] if run else b"")
        rows[-1] = rows[-1] or _row(rng, vocabulary, size)
        rows += [b""] * (rng.randint(1, 9) if rng.random() < 0.1 else 0)
        left -= max(1, size)
    before = b"x" * rng.choice([0, 0, 1, 7, 16])
    sizes = [len(before), *map(len, rows)]
    options: EncodeOptions | list[EncodeOptions] = _options(rng, vocabulary)
    if rng.random() < 0.3:
        options = [_options(rng, vocabulary) for _ in rows]
    data = np.frombuffer(before + b"".join(rows) + b"y" * rng.randint(0, 3), np.uint8)
    return Batch(data=data, offsets=np.cumsum(sizes), options=options)


def _rows(encoded: Encoded, count: int) -> list[object]:
    return [encoded.errors.get(row) or encoded.row(row).tolist() for row in range(count)]


def compare(
    engine: GpuEngine,
    cpu: CpuEngine,
    vocabulary: Vocabulary,
    batch: Batch,
    rng: Random,
    found: list[str],
) -> None:
    """Compare encoded and decoded ids, in one launch, in many, or in chunks."""
    limit_fused(engine, rng.choice([0, 1 << 22]))
    engine.pipeline.chunk_bytes = rng.choice([64, 1000, 4096, 1 << 20])
    small = rng.random() < 0.6
    engine.resources.workspaces.is_small = lambda *size: small  # type: ignore[method-assign]
    expected, got = cpu.encode(vocabulary, batch), engine.encode(vocabulary, batch)
    for row, (right, ids) in enumerate(
        zip(_rows(expected, len(batch)), _rows(got, len(batch)), strict=True)
    ):
        if ids != right:
            text = batch.row_bytes(row)[:400]
            found.append(f"row {row}, small={small}: {text!r}: {ids!r:.300}, not {right!r:.300}")
    skip = rng.random() < 0.5
    back = cpu.decode(vocabulary, expected.ids, expected.offsets, skip)
    data, offsets, errors = engine.decode(vocabulary, expected.ids, expected.offsets, skip)
    if (data.tobytes(), offsets.tolist()) != (back.data.tobytes(), back.offsets.tolist()):
        found.append(f"decoded, skip={skip}: {expected.ids.tolist()!r:.300} {errors}")


def main() -> None:
    """Run the hunt, and print what differed and how much was compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=16384)
    parser.add_argument("names", nargs="*", default=[*BUILTINS], help="of built-in vocabularies")
    asked = parser.parse_args()
    rng, cpu, found = Random(asked.seed), CpuEngine(), list[str]()
    end, count = time.monotonic() + 60 * asked.minutes, 0
    with redzones() as device:
        engine = GpuEngine(device, 1 << 30, 4 << 30)
        while time.monotonic() < end and len(found) < 50:
            name = rng.choice(asked.names)
            known, state = len(found), rng.getrandbits(40)
            try:
                own = Random(state)
                compare(engine, cpu, load(name), batch_of(own, load(name), asked.bytes), own, found)
            except NotCovered:
                continue
            for line in found[known:]:
                print(f"{name} {state}: {line}", flush=True)
            count += 1
        engine.close()
    print(f"{len(found)} differences in {count} batches")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
