"""DNATok's layer from sequences to embeddings: every path, beside a plain copy and plain writing.

    python -m benchmarks.embedding                      # needs a GPU, torch and CuPy
    python -m benchmarks.embedding --quick --device cpu

The paper's shapes and two more, HyenaDNA's letters, 128 float32 numbers for each id. All ids and
embeddings of a case are compared before it is timed. "alone" waits for the device after each call,
"in a row" after all of them, up to 20. What the figures do not show: a model behind the embedding.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import clocked, summary, take_turns
from gpu.discovery import discover
from gpu.embedding import EmbeddingLayer
from vocabularies.builtin import load

RESULTS = Path(__file__).parent / "results"
WIDTH = 128
SHAPES = ((4096, 512), (8192, 512), (2048, 2048), (32768, 512), (65536, 150))
QUICK_SHAPES = ((64, 128), (100, 50))
IN_A_ROW, ROUNDS = 20, 15
CASE_S = 0.25  # What takes long has fewer of both, at least 2 and 3.
Case = tuple[str, Callable[[], object], int]


def main(argv: list[str] | None = None) -> None:
    """Prove, time, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS / "embedding.json")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at most")
    parser.add_argument("--quick", action="store_true", help="small shapes")
    arguments = parser.parse_args(argv)
    rows = []
    for shape in QUICK_SHAPES if arguments.quick else SHAPES:
        for name, work, num_ids in cases(shape, arguments.device):
            row = {"shape": shape, "case": name, **timed(work, num_ids, arguments)}
            rows.append(row)
            print(line(row), flush=True)
    command = "python -m benchmarks.embedding " + " ".join(sys.argv[1:])
    device = torch.cuda.get_device_name() if arguments.device != "cpu" else "cpu"
    document = {"command": command, "device": device, "torch": torch.__version__, "rows": rows}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")


def line(row: dict[str, Any]) -> str:
    """A row of the table on the screen."""
    shape, alone_us = "x".join(map(str, row["shape"])), row["alone"]["median_s"] * 1e6
    rates = f"{row['alone_per_s'] / 1e9:6.2f} G/s, in a row {row['in_a_row_per_s'] / 1e9:6.2f} G/s"
    return f"{shape:>12} {row['case']:34} {alone_us:8.0f} us {rates}"


def timed(
    work: Callable[[], object], num_ids: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Medians of both ways to wait."""
    wait = torch.cuda.synchronize if arguments.device != "cpu" else lambda: None
    alone = clocked(lambda: (work(), wait()))
    once_s = min(alone(), alone())
    in_a_row = max(2, min(IN_A_ROW, int(CASE_S / ROUNDS / once_s)))
    rounds = max(3, min(arguments.rounds, int(CASE_S / once_s / (in_a_row + 1))))
    runs = {
        "alone": alone,
        "in_a_row": clocked(lambda: ([work() for _ in range(in_a_row)], wait())),
    }
    seconds = take_turns(runs, min(arguments.rounds, rounds))
    found = {name: summary(samples) for name, samples in seconds.items()}
    return {
        **found,
        "alone_per_s": num_ids / found["alone"]["median_s"],
        "calls_in_a_row": in_a_row,
        "in_a_row_per_s": num_ids * in_a_row / found["in_a_row"]["median_s"],
    }


def cases(shape: tuple[int, int], device: str) -> Iterator[Case]:
    """(name, work, ids) of everything that is timed of a shape."""
    num_ids = shape[0] * shape[1]
    letters = np.frombuffer(b"ACGTN", np.uint8)
    matrix = np.random.default_rng(0).choice(letters, shape)
    pinned = torch.from_numpy(matrix)
    pinned = pinned.pin_memory() if device != "cpu" else pinned
    texts = [row.tobytes().decode() for row in matrix]
    vocabulary = load("hyenadna")
    found = discover(vocabulary)
    embedding = torch.nn.Embedding(len(vocabulary), WIDTH, device=device).requires_grad_(False)

    def torchs(ids: Any) -> Any:
        return torch.nn.functional.embedding(ids, embedding.weight)

    if device != "cpu":
        target = torch.empty_like(pinned, device=device)
        yield "copy to the device", lambda: target.copy_(pinned, non_blocking=True), num_ids
        output = torch.empty(min(num_ids, 1 << 20), WIDTH, device=device)
        yield "writing embeddings, 1 micro-batch", lambda: output.fill_(1.0), len(output)
    expected = torch.from_numpy(found.rule.codes[matrix].astype(np.int64))  # type: ignore[union-attr]
    for name, sequences, embedder, path, settings in (
        ("pinned bytes", pinned.numpy(), embedding, "bytes", {}),
        ("pinned bytes, int32 ids", pinned.numpy(), embedding, "bytes", {"ids_dtype": torch.int32}),
        ("pinned bytes, not pipelined", pinned.numpy(), embedding, "bytes", {"pipelined": False}),
        ("pinned bytes, torch's embedding", pinned.numpy(), torchs, "bytes", {}),
        ("bytes", matrix, embedding, "bytes", {}),
        ("list[str]", texts, embedding, "bytes", {}),
        ("ids, int32 staging", matrix, embedding, "ids", {}),
        ("ids, int64 staging", matrix, embedding, "ids", {"staging_dtype": torch.int64}),
    ):
        layer = EmbeddingLayer(embedder, found, device=device, **settings)
        prove(layer, sequences, path, expected, embedding.weight)
        yield name, work_of(layer, sequences, path), num_ids
    settings = {"ids_dtype": torch.int32}
    for name, sequences in (
        ("pinned bytes", pinned.numpy()),
        ("bytes", matrix),
        ("list[str]", texts),
    ):
        layer = EmbeddingLayer(embedding, found, device=device, **settings)
        prove_ids(layer, sequences, expected)
        yield f"int32 ids alone, {name}", ids_work_of(layer, sequences), num_ids


def prove(layer: EmbeddingLayer, sequences: Any, path: Any, expected: Any, weight: Any) -> None:
    """Every id and every number of an embedding, and that no path fell back.

    Raises:
        SystemExit: one differs.
    """
    end = 0
    for part in layer.embed_from_strings(sequences, path):
        same_ids = torch.equal(part.ids.long().cpu(), expected[part.begin : part.end])
        same_rows = torch.equal(part.activations, weight[part.ids.long()])
        if part.begin != end or not same_ids or not same_rows or part.reason:
            sys.exit(f"rows {part.begin} to {part.end} are wrong ({part.path}; {part.reason})")
        end = part.end
    if end != len(expected):
        sys.exit(f"{end} of {len(expected)} rows came out")


def prove_ids(layer: EmbeddingLayer, sequences: Any, expected: Any) -> None:
    """Every id of a call that embeds nothing.

    Raises:
        SystemExit: one differs.
    """
    if not torch.equal(layer.ids_from_strings(sequences).long().cpu(), expected):
        sys.exit("the ids alone are wrong")


def ids_work_of(layer: EmbeddingLayer, sequences: Any) -> Callable[[], None]:
    """One call whose ids stay on the device."""

    def work() -> None:
        layer.ids_from_strings(sequences)

    return work


def work_of(layer: EmbeddingLayer, sequences: Any, path: Any) -> Callable[[], None]:
    """One call whose parts are dropped as they come."""

    def work() -> None:
        for part in layer.embed_from_strings(sequences, path):
            del part

    return work


if __name__ == "__main__":
    main()
