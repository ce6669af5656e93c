"""The GPU engine beside plain copies, our CPU engine and the other libraries, in one run.

    python -m benchmarks.engine --data FOLDER                 # FOLDER holds text/ and vocab/
    python -m benchmarks.engine --data FOLDER --quick --only kernels host
    python -m benchmarks.engine --data FOLDER --only proof --prove-bytes 1e9

What the figures do not show: HTTP, a service's queue, other work on the machine, files that must be
read first. Every id is compared with tiktoken's or tokenizers' before anything is timed, and what
is timed must give the ids that were proved. README.md says what each block is.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bulk import HOST, KERNELS
from benchmarks.cliffs import CLIFFS
from benchmarks.corpora import CORPORA
from benchmarks.gpu_runs import GpuRuns
from benchmarks.mixed import mixed_texts
from benchmarks.proofs import Proofs
from benchmarks.report import document_of, table, write
from benchmarks.rival_rates import RIVALS
from benchmarks.session import FULL, QUICK, TINY, Block, Row, Session
from benchmarks.shapes import SHAPES
from benchmarks.starts import STARTS
from benchmarks.timed_vocabularies import (
    NAMES,
    TimedVocabulary,
    read_timed,
    without_normalizers,
)
from benchmarks.witnesses import Witnesses
from gpu.device import CudaDevice, Device, DeviceUnavailable
from gpu.engine import NotCovered
from vocabularies.vocabulary import Vocabulary

BLOCKS: dict[str, Block] = {
    "kernels": KERNELS,
    "host": HOST,
    "rivals": RIVALS,
    "shapes": SHAPES,
    "cliffs": CLIFFS,
    "starts": STARTS,
}
PROOF = "proof"
MEGABYTE = 1 << 20
WORKSPACE_BYTES, EMULATED_BYTES = 90 << 30, 1 << 30
CHUNK_BYTES = 32 << 20
TOKEN_PIECES, SPECIAL_EVERY = "cl100k_base", 500
RESULTS = Path(__file__).parent / "results"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of text/ and vocab/")
    parser.add_argument("--out", type=Path, default=RESULTS / "engine.json")
    parser.add_argument("--quick", action="store_true", help="smaller texts, fewer turns")
    parser.add_argument("--only", nargs="+", choices=[PROOF, *BLOCKS], default=list(BLOCKS))
    parser.add_argument("--vocabularies", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--main", nargs="+", default=["gpt2", "cl100k_base"])
    parser.add_argument("--corpora", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--megabytes", type=int, help="MiB of each corpus")
    parser.add_argument("--prove-bytes", type=float, default=0, help="mixed text to compare, too")
    parser.add_argument("--witness-cache", type=Path, help="JSON of what the witnesses said before")
    parser.add_argument("--emulate", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def open_device(emulate: bool) -> Device:
    """The GPU.

    Raises:
        DeviceUnavailable: there is none.
    """
    if emulate:
        from tests.emulated_device import EmulatedDevice

        return EmulatedDevice(1 << 34)
    return CudaDevice()


def vocabularies(
    args: argparse.Namespace, gpu: GpuRuns, scratch: Path
) -> tuple[dict[str, TimedVocabulary], dict[str, Row]]:
    """Those that the engine covers; and of each that was asked for what became of it."""
    timed: dict[str, TimedVocabulary] = {}
    told: dict[str, Row] = {}
    for name in args.vocabularies:
        try:
            found = read_timed(name, args.data, scratch)
        except FileNotFoundError as error:
            told[name] = {"status": f"absent: {error.filename}"}
            continue
        for candidate in (found, *raw_form(found, scratch)):
            try:
                size = gpu.engine.load(candidate.vocabulary)
            except NotCovered as error:
                told[candidate.name] = {"status": f"not covered: {error}"}
                continue
            timed[candidate.name] = candidate
            told[candidate.name] = {"status": "covered", "device_bytes": size}
            told[candidate.name] |= {"digest": candidate.vocabulary.digest}
            told[candidate.name] |= {"ids": len(candidate.vocabulary)}
            break
    return timed, told


def raw_form(found: TimedVocabulary, scratch: Path) -> list[TimedVocabulary]:
    """What is tried where the engine does not cover what rewrites the text first."""
    return [without_normalizers(found, scratch)] if found.vocabulary.normalizers else []


def pieces_of(vocabulary: Vocabulary) -> list[bytes]:
    """Tokens to make random text of, special ones of all kinds among them."""
    tokens = [token for token in vocabulary.tokens if token]
    special = [token.content.encode() for token in vocabulary.special_tokens]
    times = len(tokens) // SPECIAL_EVERY // max(1, len(special)) + 1
    return [*tokens, *(special * times)]


def prove(session: Session, args: argparse.Namespace, blocks: dict[str, Block]) -> None:
    """All that the blocks will time, and the mixed text."""
    pairs = [pair for block in blocks.values() for pair in block.pairs(session)]
    unique = {(timed.name, text.digest): (timed, text) for timed, text in pairs}
    print(f"proving {len(unique)} texts", flush=True)
    session.proofs.prove(list(unique.values()))
    if args.prove_bytes:
        pieces = pieces_of(read_timed(TOKEN_PIECES, args.data, session.witnesses.folder).vocabulary)
        texts = mixed_texts(args.data, pieces, int(args.prove_bytes))
        session.proofs.prove_stream(list(session.vocabularies.values()), "mixed", texts)


def run(args: argparse.Namespace, device: Device, scratch: Path) -> dict[str, Any]:
    """Prove, time, and give the document of results."""
    sizes = TINY if args.emulate else QUICK if args.quick else FULL
    if args.megabytes:
        sizes = replace(sizes, corpus_bytes=args.megabytes * MEGABYTE)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(scratch)
    workspace_bytes = EMULATED_BYTES if args.emulate else WORKSPACE_BYTES
    gpu = GpuRuns(device, workspace_bytes, CHUNK_BYTES)
    timed, told = vocabularies(args, gpu, scratch)
    cores = len(os.sched_getaffinity(0))
    with closing(Witnesses(scratch, cores, {}, args.witness_cache)) as witnesses:
        proofs = Proofs(witnesses, lambda t, x: gpu.encode(t.vocabulary, x.data, x.offsets))
        session = Session(
            *(sizes, args.data, gpu, timed, args.main, witnesses, proofs),
            log=lambda line: print(line, flush=True),
            corpus_names=args.corpora,
        )
        blocks = {name: block for name, block in BLOCKS.items() if name in args.only}
        prove(session, args, blocks)
        rows = {name: block.run(session) for name, block in blocks.items()}
        return document_of(session, told, rows)


def main(argv: list[str] | None = None) -> None:
    """Run, write and print."""
    args = arguments(argv)
    try:
        device = open_device(args.emulate)
    except DeviceUnavailable as error:
        print(f"no benchmark without a GPU: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    with tempfile.TemporaryDirectory(prefix="warptok-benchmark-") as scratch:
        document = run(args, device, Path(scratch))
    write(document, args.out)
    print(table(document))


if __name__ == "__main__":
    main()
