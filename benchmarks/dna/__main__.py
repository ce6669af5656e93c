"""Compares warptok's DNA engines with other tokenizers on the DNATok paper's shapes and on genomes.

    python -m benchmarks.dna --data FOLDER                  # minutes; writes dna.json
    python -m benchmarks.dna --data FOLDER --engine cpu --quick
    python -m benchmarks.dna --data FOLDER --prove-bases 1e9 --only-prove

Ids are compared before anything is timed. A fast reference is compared with the slow one; every
engine with the fast one, on random and real rows (`--prove-bases`, each vocabulary); and then every
tokenizer on the texts that are timed. The run ends if an id differs. Without a GPU, or with
`--engine cpu`, everything that needs no GPU runs. The tokenizers of one shape take turns.

The figures do not show the time of files, of the network, or of an embedder behind the ids. Strings
are made before the clock starts; the ids of other libraries are not converted. A tokenizer of a few
megabases a second gets only the front of a shape, whose last row may be cut (`bases` has its size).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dna.engines import cpu_ways, front, gpu_ways, other_ways
from benchmarks.dna.fast_references import find_fast_reference
from benchmarks.dna.proofs import Prover
from benchmarks.dna.sequences import QUICK, SHAPES, Sequences, Shape, genome, sequences
from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.support.machine import machine
from benchmarks.support.timing import per_second, summary, take_turns
from gpu.errors import DeviceUnavailable
from gpu.host.cores import usable_cores
from gpu.runtime.cuda_device import CudaDevice
from service.engines.cpu.engine import CpuEngine
from vocabularies import builtin

VOCABULARIES = ("hyenadna", "nt_v2", "mtdna6", "dnabert2", "gena_lm_t2t_32k")
PACKAGES = ("numpy", "tokenizers", "fastokens", "transformers")
WORKSPACE_BYTES = 8 << 30


def time_shape(
    args: argparse.Namespace,
    prover: Prover,
    cpu: CpuEngine,
    gpu: GpuWays | None,
    name: str,
    rows: Sequences,
) -> Iterator[dict[str, Any]]:
    """Time all ways of one vocabulary on one shape.

    Raises:
        SystemExit: one of them returns other ids than the fast reference.
    """
    vocabulary = builtin.load(name)
    _, fast_reference = find_fast_reference(vocabulary)
    expected = {len(rows.data): prover.ids(name, rows)}
    with ExitStack() as stack:
        ways = cpu_ways(cpu, vocabulary, rows)
        ways |= dict(other_ways(vocabulary, name, fast_reference, rows, args.data))
        if gpu is not None:
            ways |= stack.enter_context(gpu_ways(gpu, vocabulary, rows))
        for way_name, way in ways.items():
            way.run()
            if way.bases not in expected:
                expected[way.bases] = prover.ids(name, front(rows, way.bases))
            is_copy = way_name.startswith("copy ")
            if not is_copy and not np.array_equal(way.ids(), expected[way.bases]):
                raise SystemExit(f"{name}, {rows.name}: {way_name} gives other ids")
        runs = {way_name: way.run for way_name, way in ways.items()}
        samples = take_turns(runs, args.rounds, slice_s=args.slice_s)
    for way_name, seconds in samples.items():
        row: dict[str, Any] = {"vocabulary": name, "shape": rows.name, "way": way_name}
        row |= {"bases": ways[way_name].bases, "seconds": summary(seconds)}
        row["gb_per_s"] = per_second(ways[way_name].bases, seconds)
        print(
            f"{name:16} {rows.name:20} {way_name:30} {row['gb_per_s']:9.4f} G bases/s", flush=True
        )
        yield row


def open_gpu(engine: str) -> GpuWays | None:
    """Open the GPU, if the options request it and there is one.

    Raises:
        SystemExit: it is requested and there is none.
    """
    if engine == "cpu":
        return None
    try:
        return GpuWays(CudaDevice(), WORKSPACE_BYTES)
    except DeviceUnavailable as error:
        if engine == "gpu":
            raise SystemExit(f"no GPU: {error}") from error
        print(f"without a GPU: {error}", flush=True)
        return None


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with dna/*.fa*; absent: random bases")
    parser.add_argument("--engine", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--vocabularies", nargs="+", default=VOCABULARIES)
    parser.add_argument("--prove-bases", type=lambda text: int(float(text)), default=4_000_000)
    parser.add_argument("--only-prove", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two small shapes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice-s", type=float, default=0.005)
    parser.add_argument("--processes", type=int, default=usable_cores(), help="of fast references")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results/dna/dna.json"
    )
    return parser.parse_args(arguments)


def run(args: argparse.Namespace, gpu: GpuWays | None, shapes: tuple[Shape, ...]) -> dict[str, Any]:
    """Prove, then time."""
    cpu, engines = CpuEngine(), {} if gpu is None else {"gpu": gpu.engine}
    source, bases = genome(args.data)
    results: list[dict[str, Any]] = []
    with Prover(args.data, args.processes) as prover:
        proofs = [prover.prove(engines, name, args.prove_bases) for name in args.vocabularies]
        for shape in () if args.only_prove else shapes:
            rows = sequences(shape, bases)
            for name in args.vocabularies:
                results += time_shape(args, prover, cpu, gpu, name, rows)
    return {"bases_of": source, "proofs": proofs, "results": results}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    args = parse(sys.argv[1:] if arguments is None else arguments)
    gpu = open_gpu(args.engine)
    about = machine(PACKAGES)
    if gpu is not None:
        about["device"] = gpu.device.info.name
    options = {
        name: str(value) for name, value in vars(args).items() if not isinstance(value, Path)
    }
    document: dict[str, Any] = {"options": options, "machine": about}
    document |= run(args, gpu, QUICK if args.quick else SHAPES)
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
