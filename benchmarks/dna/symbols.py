"""Characters, k-mers and BPE of letters from device to device: proves the ids, then times.

    python -m benchmarks.dna.symbols --out FILE.json [--megabytes 256]

The ids are compared with the CPU engine's. The share of the copy rate counts bytes moved: text read
and ids written, against a copy of device memory, read and written, in the same run; `with_places`
counts where rows begin and where their ids do, too. Texts are random bases; some cases add N and
soft masking, which the plain kernels do not encode.
"""

from __future__ import annotations

import argparse
import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.gpu_clock import Clock
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.texts import Bytes
from benchmarks.support.timing import summary
from gpu.batch.kernel_choice import FALLBACK_BREAK, fallback_kernels, first_kernels
from gpu.batch.transfer import launch, pack_rows, status_of
from gpu.engine import GpuEngine
from gpu.kernels.job import STATUS
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

PACKAGES = ("numpy", "tokenizers", "fastokens", "warptok")
ROUNDS, WARMUPS = 9, 4  # Kernels are recorded the third time.
WIDTHS = {
    "hyenadna": (32, 16, 8),
    "evo_bytes": (16,),
    "mtdna6": (32, 16),
    "dnabert1_3mer": (8,),
    "nt_v2": (32, 16),
    "dnabert2": (32,),
    "motifs": (32,),
}
"""Vocabularies, and the bits of their ids; "motifs" are DNABERT-2's merges between motifs."""
NUM_MOTIFS, MOTIF_BASES = 2777, 7  # As many seeds as the miRNA families of MirMachine have.
ROW_BASES = (0, 150, 512, 32_768, 131_072)
"""Lengths of rows; 0 is one row of all bases."""
RAGGED_BASES = 150  # On average, from half of it to half as much again.
PLACE_BYTES = 16  # Of a row: where its letters begin, and where its ids do.
GIGA = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Rows of bases uint8[N], and the start of each, int64[B + 1]."""

    name: str
    data: Bytes
    offsets: Any

    @classmethod
    def of(cls, name: str, data: Bytes, bases: int) -> Sequences:
        """Make rows of `bases` bases each; 0: all bases are one row."""
        if not bases:
            return cls(name, data, np.array([0, len(data)]))
        offsets = np.arange(0, len(data) + 1, bases)
        return cls(f"{name}, rows of {bases}", data[: offsets[-1]], offsets)

    @classmethod
    def ragged(cls, name: str, data: Bytes, bases: int) -> Sequences:
        """Make rows of different lengths, of `bases` bases on average."""
        lengths = np.random.default_rng(1).integers(
            bases // 2, bases * 3 // 2 + 1, len(data) // bases
        )
        offsets = np.append(0, np.cumsum(lengths))
        offsets = offsets[offsets <= len(data)]
        return cls(f"{name}, rows of about {bases}", data[: offsets[-1]], offsets)


@functools.cache
def vocabulary_of(name: str) -> Vocabulary:
    """Load a built-in vocabulary, or make "motifs": random words among DNABERT-2's tokens."""
    if name != "motifs":
        return load(name)
    base, chance = load("dnabert2"), np.random.default_rng(0)
    assert isinstance(base.model, Bpe)
    words = chance.choice([*"ACGT"], (NUM_MOTIFS, MOTIF_BASES))
    motifs = sorted({"".join(word) for word in words})
    added = [token for token in map(str.encode, motifs) if token not in base.tokens]
    return replace(
        base,
        tokens=(*base.tokens, *added),
        model=replace(base.model, ignore_merges=True),
        pretokenizer="motifs",
        motifs=tuple(motifs),
    )


def all_sequences(size: int) -> list[Sequences]:
    """Make the sequences that are timed."""
    chance = np.random.default_rng(0)
    bases = chance.choice(np.frombuffer(b"ACGT", np.uint8), size)
    real = bases.copy()
    real[chance.integers(0, size, max(1, size // 10_000))] = ord("N")
    real[size // 4 : size // 2] |= 0x20
    made = [Sequences.of("bases", bases, row) for row in ROW_BASES if row < size]
    if RAGGED_BASES < size:
        made.append(Sequences.ragged("bases", bases, RAGGED_BASES))
    return [*made, Sequences.of("N and soft masking", real, 0)]


def prove(engine: GpuEngine, name: str, sequences: Sequences, most: int = 1 << 20) -> int:
    """Compare the first rows with the CPU engine; return the number of their bases.

    Raises:
        SystemExit: they differ.
    """
    rows = max(1, int(np.searchsorted(sequences.offsets, most, "right")) - 1)
    end = min(int(sequences.offsets[rows]), most)
    offsets = np.append(sequences.offsets[:rows], end)
    batch = Batch(
        data=sequences.data[:end],
        offsets=offsets,
        options=EncodeOptions(add_special_tokens=False),
    )
    expected, got = (each.encode(vocabulary_of(name), batch) for each in (CpuEngine(), engine))
    if (
        got.ids.tolist() != expected.ids.tolist()
        or got.offsets.tolist() != expected.offsets.tolist()
    ):
        raise SystemExit(f"the ids of {name} differ from the CPU engine's: nothing is timed")
    return end


def time_kernels(
    engine: GpuEngine, clock: Clock, name: str, sequences: Sequences, bits: int
) -> dict[str, Any]:
    """Time from text on the device to ids on the device; return seconds and bytes moved."""
    resources = engine.resources
    data, offsets, processors = sequences.data, sequences.offsets, resources.processors
    with (
        resources.residents.using(vocabulary_of(name)) as resident,
        resources.workspaces.lend(len(data), len(offsets) - 1, resident.family.layout) as workspace,
    ):
        stream = workspace.stream
        pack_rows(workspace, resident, data, offsets, processors, id_bits=bits)
        kernels, samples, fallback = first_kernels(workspace, resident, id_bits=bits), [], 0
        for number in range(WARMUPS + ROUNDS):
            stream.clear(workspace.fields["status"], 8 * int(workspace.job[0]["num_cleared"]))
            begin = clock.mark(stream)
            launch(workspace, kernels, processors)
            end = clock.mark(stream)
            status = status_of(workspace)
            if number == 0 and (fallback := int(status[STATUS["FALLBACK"]])):
                others = fallback_kernels(workspace, resident, fallback, id_bits=bits)
                # A large batch behind one like it is not tried by the plain kernels.
                kernels = others if fallback == FALLBACK_BREAK else (*kernels, *others)
            if number >= WARMUPS:
                samples.append(clock.seconds(begin, end))
        num_ids = int(status_of(workspace)[STATUS["NUM_IDS"]])
    moved = len(data) + num_ids * bits // 8
    return {"seconds": summary(samples), "num_ids": num_ids, "moved": moved, "rare": fallback}


def copy_rate(device: Device, clock: Clock, size: int) -> float:
    """Measure a copy in device memory: bytes read and written per second."""
    source, to, stream = device.allocate(size), device.allocate(size), device.stream()
    samples = []
    for _ in range(WARMUPS + ROUNDS):
        begin = clock.mark(stream)
        clock.copy_on_device(stream, to, source, size)
        end = clock.mark(stream)
        stream.synchronize()
        samples.append(clock.seconds(begin, end))
    device.free(source)
    device.free(to)
    return 2 * size / float(np.median(samples[WARMUPS:]))


def measure(device: Device, size: int) -> dict[str, Any]:
    """Measure everything, and print each result."""
    engine, clock = GpuEngine(device, 64 * size + (1 << 30)), Clock(device)
    rate, results = copy_rate(device, clock, max(size, 1 << 20)), []
    print(f"copy {rate / GIGA:.0f} GB/s, read and written")
    for sequences in all_sequences(size):
        for name, widths in WIDTHS.items():
            proved = prove(engine, name, sequences)
            for bits in widths:
                timed = time_kernels(engine, clock, name, sequences, bits)
                seconds = timed["seconds"]["median_s"]
                share, bases = timed["moved"] / seconds / rate, len(sequences.data) / seconds / GIGA
                places = PLACE_BYTES * len(sequences.offsets)
                shares = {"share_of_copy": share, "with_places": share + places / seconds / rate}
                what = f"{sequences.name:28} {name:14} {bits:2} bits"
                print(f"{what}  {bases:6.0f} Gbases/s  {share:.0%} of the copy rate")
                named = {"sequences": sequences.name, "vocabulary": name, "bits": bits}
                results.append({**named, "proved_bases": proved, **shares, **timed})
    about = device_facts(device.info) | machine(PACKAGES)
    return {"machine": about, "copy_bytes_a_second": rate, "results": results}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, default=256)
    arguments = parser.parse_args()
    measured = measure(CudaDevice(), arguments.megabytes << 20)
    arguments.out.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
