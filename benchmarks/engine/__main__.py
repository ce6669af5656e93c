"""Compares the GPU engine with plain copies, the CPU engine and other libraries in one run.

    python -m benchmarks.engine --data FOLDER
    python -m benchmarks.engine --data FOLDER --quick --only kernels host
    python -m benchmarks.engine --data FOLDER --only --prove-bytes 1e9      # proves, times nothing
    python -m benchmarks.engine --data FOLDER --engine cpu                  # needs no GPU

What the figures do not show: HTTP, a service's queue, other work on the machine, files that must be
read first. Every id is compared with tiktoken's before anything is timed, and what is timed must
give the ids that were proved. benchmarks/README.md says what is in FOLDER
and what each block is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.engine.blocks.bulk import HOST, KERNELS
from benchmarks.engine.blocks.cliffs import CLIFFS
from benchmarks.engine.blocks.cold_starts import STARTS
from benchmarks.engine.blocks.comparisons import CORPORA, SHAPES
from benchmarks.engine.blocks.session import FULL, QUICK, TINY, Block, Session
from benchmarks.engine.competitors import ENGINES
from benchmarks.engine.cpu import comparison as cpu
from benchmarks.engine.cpu.comparison import CORES, KINDS
from benchmarks.engine.first_call import open_device
from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.engine.mixed_texts import mixed_texts
from benchmarks.engine.references.proofs import Differs, Proofs
from benchmarks.engine.references.published_vocabularies import NAMES, read_published
from benchmarks.engine.references.reference_libraries import ReferenceProcesses
from benchmarks.support.corpora import CORPORA as TEXTS
from benchmarks.support.machine import device_facts, machine
from gpu.errors import DeviceUnavailable
from gpu.host.cores import usable_cores
from vocabularies import builtin
from vocabularies.model.vocabulary import Vocabulary

BLOCKS: dict[str, Block] = {
    "kernels": KERNELS,
    "host": HOST,
    "corpora": CORPORA,
    "shapes": SHAPES,
    "cliffs": CLIFFS,
    "starts": STARTS,
}
PACKAGES = (
    "numpy",
    "tiktoken",
    "tokenizers",
    "fastokens",
    "gigatoken",
    "warptok",
)
MEGABYTE = 1 << 20
WORKSPACES_SHARE = 0.7  # Of free device memory.
TOKEN_PIECES, SPECIAL_EVERY = "cl100k_base", 500
RESULTS = Path(__file__).parents[1] / "results"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of text/ and vocab/")
    parser.add_argument("--out", type=Path, default=RESULTS / "engine.json")
    parser.add_argument("--quick", action="store_true", help="smaller texts, fewer turns")
    parser.add_argument("--only", nargs="*", choices=list(BLOCKS), default=list(BLOCKS))
    parser.add_argument("--vocabularies", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--main", nargs="+", choices=NAMES, default=["gpt2", "cl100k_base"])
    parser.add_argument("--corpora", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--megabytes", type=int, help="MiB of each corpus")
    parser.add_argument(
        "--prove-bytes", type=float, default=0, help="of mixed text, with every vocabulary"
    )
    parser.add_argument("--engine", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, help="with --engine cpu"
    )
    parser.add_argument(
        "--cores", nargs="+", choices=CORES, default=CORES, help="with --engine cpu"
    )
    parser.add_argument(
        "--add", action="store_true", help="with --engine cpu: to the rows of an earlier run's file"
    )
    parser.add_argument(
        "--other-python", type=Path, help="with --engine cpu: has another version of tokenizers"
    )
    parser.add_argument("--emulate", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def pieces_of(vocabulary: Vocabulary) -> list[bytes]:
    """Return the tokens, including special ones, that random text is made of."""
    tokens = [token for token in vocabulary.tokens if token]
    special = [token.content.encode() for token in vocabulary.special_tokens]
    times = len(tokens) // SPECIAL_EVERY // max(1, len(special)) + 1
    return [*tokens, *(special * times)]


def prove(session: Session, blocks: dict[str, Block], prove_bytes: float) -> None:
    """Compare the ids of the data folder's files, of all texts of the blocks, and of mixed text.

    Raises:
        Differs: an id is not the reference's.
    """
    timed = list(session.vocabularies.values())
    session.proofs.prove_files(session.data, timed)
    pairs = [pair for block in blocks.values() for pair in block.pairs(session)]
    unique = {(timed.name, text.digest): (timed, text) for timed, text in pairs}
    session.log(f"proving {len(unique)} texts")
    session.proofs.prove(list(unique.values()))
    if prove_bytes:
        session.log(f"proving {prove_bytes:g} bytes of mixed text with every vocabulary")
        texts = mixed_texts(session.data, pieces_of(builtin.load(TOKEN_PIECES)), int(prove_bytes))
        session.proofs.prove_stream(timed, "mixed", texts)
    session.log(f"proved {sum(record.num_bytes for record in session.proofs.records):,} bytes")


def run(args: argparse.Namespace, command: str, gpu: GpuWays, scratch: Path) -> dict[str, Any]:
    """Compare ids, time the blocks and return the results; each block is saved when it ends.

    Raises:
        Differs: an id of ours is not the reference's.
    """
    began = perf_counter()
    sizes = TINY if args.emulate else QUICK if args.quick else FULL
    if args.megabytes:
        sizes = replace(sizes, corpus_bytes=args.megabytes * MEGABYTE)
    timed = {name: read_published(name, args.data, scratch) for name in args.vocabularies}
    for each in timed.values():
        gpu.engine.load(each.vocabulary)
    with closing(ReferenceProcesses(scratch, usable_cores())) as references:
        session = Session(
            sizes=sizes,
            data=args.data,
            scratch=scratch,
            gpu=gpu,
            vocabularies=timed,
            main=args.main,
            corpus_names=args.corpora,
            proofs=Proofs(references, gpu.engine),
            engines=args.engines,
            log=lambda line: print(f"{perf_counter() - began:5.0f} s  {line}", flush=True),
            emulate=args.emulate,
        )
        blocks = {name: block for name, block in BLOCKS.items() if name in args.only}
        prove(session, blocks, args.prove_bytes)
    document: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name, block in blocks.items():
        rows[name] = block.run(session)
        document = document_of(session, command, rows)
        partial_of(args.out).write_text(as_text(document))
    session.log("done")
    return document or document_of(session, command, rows)


def document_of(session: Session, command: str, rows: dict[str, Any]) -> dict[str, Any]:
    """Make the document: the results, and what is needed to repeat the run."""
    return {
        "command": command,
        "machine": device_facts(session.gpu.device.info) | machine(PACKAGES),
        "sizes": asdict(session.sizes),
        "vocabularies": {
            name: {"digest": timed.vocabulary.digest, "ids": len(timed.vocabulary)}
            for name, timed in session.vocabularies.items()
        },
        "corpora_sha256": {name: text.sha256 for name, text in session.corpora.items()},
        "proofs": [asdict(proved) for proved in session.proofs.records],
        **rows,
    }


def partial_of(out: Path) -> Path:
    """Return the path of the results of the blocks that have ended."""
    return out.with_suffix(".partial.json")


def command_of(args: argparse.Namespace, argv: list[str] | None) -> str:
    """Return the command without paths of this machine."""
    names = {str(args.data): "FOLDER", str(args.out): "FILE.json"}
    names[str(args.other_python)] = "PYTHON"
    given = sys.argv[1:] if argv is None else argv
    return " ".join(["python -m benchmarks.engine", *(names.get(word, word) for word in given)])


def as_text(document: dict[str, Any]) -> str:
    """Write JSON with a line for each row."""

    def lines(value: Any) -> str:
        if isinstance(value, list):
            return "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        return json.dumps(value)

    fields = (f" {json.dumps(name)}: {lines(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def measure_cpu(args: argparse.Namespace, command: str) -> None:
    """Compare the CPU engine with the libraries, and write the results."""
    sizes = cpu.TINY if args.emulate else cpu.QUICK if args.quick else cpu.FULL
    try:
        document = cpu.run_cpu(args.data, args.kinds, args.cores, sizes, args.other_python, command)
    except Differs as error:
        raise SystemExit(f"wrong ids, so no figures: {error}") from error
    if args.add and args.out.exists():
        document = cpu.added(json.loads(args.out.read_text()), document)
    args.out.write_text(as_text(document))
    print(f"written: {args.out}")


def main(argv: list[str] | None = None) -> None:
    """Run, write and print; nothing is written where an id differs."""
    args = arguments(argv)
    if args.engine == "cpu":
        measure_cpu(args, command_of(args, argv))
        return
    try:
        device = open_device(args.emulate)
    except DeviceUnavailable as error:
        print(f"no benchmark without a GPU: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    gpu = GpuWays(device, int(WORKSPACES_SHARE * device.info.free_bytes))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warptok-benchmark-") as scratch:
        try:
            document = run(args, command_of(args, argv), gpu, Path(scratch))
        except Differs as error:
            partial_of(args.out).unlink(missing_ok=True)
            raise SystemExit(f"wrong ids, so no figures: {error}") from error
    args.out.write_text(as_text(document))
    partial_of(args.out).unlink(missing_ok=True)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
