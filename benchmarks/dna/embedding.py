"""DNATok's layer from sequences to embeddings: every path, beside a plain copy and plain writing.

    python -m benchmarks.dna.embedding                      # needs a GPU, torch and CuPy
    python -m benchmarks.dna.embedding --quick --device cpu

The paper's shapes and two more, HyenaDNA's letters, 128 float32 numbers for each id. All ids and
embeddings of a case are compared before it is timed. "alone" waits for the device after each call,
"in a row" after all of them, up to 20. The layer replaces a `torch.nn.Embedding` by a kernel of its
own; a function with the same result is called as it is ("look-ups beside" and "before"). The
figures do not show the time of a model behind the embedding.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.support.timing import clocked, summary, take_turns
from gpu.embedding.layer import EmbeddingLayer
from gpu.embedding.row_gather import choose_embedder
from gpu.embedding.tokenizer_discovery import Discovery, discover
from vocabularies.builtin import load

RESULTS = Path(__file__).parents[1] / "results"
WIDTH = 128
SHAPES = ((4096, 512), (8192, 512), (2048, 2048), (32768, 512), (65536, 150))
QUICK_SHAPES = ((64, 128), (100, 50))
IN_A_ROW, ROUNDS = 20, 15
WAKE_S = 1.0
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
    if arguments.device != "cpu":
        wake(arguments.device)
    for shape in QUICK_SHAPES if arguments.quick else SHAPES:
        for name, work, num_ids in cases(shape, arguments.device):
            row = {"shape": shape, "case": name, **timed(work, num_ids, arguments)}
            rows.append(row)
            print(line(row), flush=True)
    command = "python -m benchmarks.dna.embedding " + " ".join(sys.argv[1:])
    device = torch.cuda.get_device_name() if arguments.device != "cpu" else "cpu"
    document = {"command": command, "device": device, "torch": torch.__version__, "rows": rows}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")


def wake(device: str) -> None:
    """Keep a device busy until its clocks have risen, so that the first case is not slower."""
    output, end = torch.empty(1 << 20, WIDTH, device=device), perf_counter() + WAKE_S
    while perf_counter() < end:
        output.fill_(1.0)
        torch.cuda.synchronize()


def line(row: dict[str, Any]) -> str:
    """Format a row of the table."""
    shape, alone_us = "x".join(map(str, row["shape"])), row["alone"]["median_s"] * 1e6
    rates = f"{row['alone_per_s'] / 1e9:6.2f} G/s, in a row {row['in_a_row_per_s'] / 1e9:6.2f} G/s"
    return f"{shape:>12} {row['case']:34} {alone_us:8.0f} us {rates}"


def timed(
    work: Callable[[], object], num_ids: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the medians of calls alone and of calls in a row."""
    wait: Callable[[], object] = (
        torch.cuda.synchronize if arguments.device != "cpu" else lambda: None
    )
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


@dataclass(frozen=True, slots=True)
class Inputs:
    """The rows of a shape in every form, and the expected results.

    Attributes:
        matrix, pinned, texts: the same rows as uint8[B, T], as pinned uint8[B, T], and as strings.
        found: the letters' ids, discovered from HyenaDNA's vocabulary.
        embedding: the embedding on the device.
        expected: int64[B, T], the ids, on the host.
    """

    matrix: NDArray[np.uint8]
    pinned: torch.Tensor
    texts: list[str]
    found: Discovery
    embedding: torch.nn.Embedding
    expected: torch.Tensor
    device: str

    @property
    def num_ids(self) -> int:
        """Count the ids of all rows."""
        return self.matrix.size


def inputs_of(shape: tuple[int, int], device: str) -> Inputs:
    """Make random rows of bases and N."""
    matrix = np.random.default_rng(0).choice(np.frombuffer(b"ACGTN", np.uint8), shape)
    pinned = torch.from_numpy(matrix)
    pinned = pinned.pin_memory() if device != "cpu" else pinned
    texts = [row.tobytes().decode() for row in matrix]
    vocabulary = load("hyenadna")
    found = discover(vocabulary)
    assert found.rule is not None
    expected = torch.from_numpy(found.rule.codes[matrix].astype(np.int64))
    embedding = torch.nn.Embedding(len(vocabulary), WIDTH, device=device).requires_grad_(False)
    return Inputs(matrix, pinned, texts, found, embedding, expected, device)


def cases(shape: tuple[int, int], device: str) -> Iterator[Case]:
    """Make everything that is timed for `shape` = (rows, letters of a row) on a device."""
    inputs = inputs_of(shape, device)
    if device != "cpu":
        yield from memory_cases(inputs)
    yield from layer_cases(inputs)
    yield from ids_cases(inputs)


def memory_cases(inputs: Inputs) -> Iterator[Case]:
    """List copies over PCIe and in memory."""
    target = torch.empty_like(inputs.pinned, device=inputs.device)
    copy = functools.partial(target.copy_, inputs.pinned, non_blocking=True)
    yield "copy to the device", copy, inputs.num_ids
    output = torch.empty(min(inputs.num_ids, 1 << 20), WIDTH, device=inputs.device)
    yield "writing embeddings, 1 micro-batch", lambda: output.fill_(1.0), len(output)


def layer_cases(inputs: Inputs) -> Iterator[Case]:
    """List the paths from sequences to embeddings."""
    embedding, matrix, pinned = inputs.embedding, inputs.matrix, inputs.pinned.numpy()

    gather, _ = choose_embedder(embedding, embedding.weight.device)

    def torchs(ids: Any) -> Any:
        return torch.nn.functional.embedding(ids, embedding.weight)

    def unknown(ids: Any) -> Any:
        return gather(ids)

    for name, sequences, embedder, path, settings in (
        ("pinned bytes", pinned, embedding, "bytes", {}),
        ("pinned bytes, int32 ids", pinned, embedding, "bytes", {"ids_dtype": torch.int32}),
        ("pinned bytes, look-ups beside", pinned, unknown, "bytes", {}),
        ("pinned bytes, look-ups before", pinned, unknown, "bytes", {"pipelined": False}),
        ("pinned bytes, torch's embedding", pinned, torchs, "bytes", {}),
        ("bytes", matrix, embedding, "bytes", {}),
        ("list[str]", inputs.texts, embedding, "bytes", {}),
        ("ids, int32 staging", matrix, embedding, "ids", {}),
        ("ids, int64 staging", matrix, embedding, "ids", {"staging_dtype": torch.int64}),
    ):
        layer = EmbeddingLayer(embedder, inputs.found, device=inputs.device, **settings)
        prove(layer, sequences, path, inputs.expected, embedding.weight)
        yield name, work_of(layer, sequences, path), inputs.num_ids


def ids_cases(inputs: Inputs) -> Iterator[Case]:
    """List the paths from sequences to int32 ids."""
    forms = {
        "pinned bytes": inputs.pinned.numpy(),
        "bytes": inputs.matrix,
        "list[str]": inputs.texts,
    }
    for name, sequences in forms.items():
        layer = EmbeddingLayer(
            inputs.embedding, inputs.found, device=inputs.device, ids_dtype=torch.int32
        )
        prove_ids(layer, sequences, inputs.expected)
        yield f"int32 ids alone, {name}", ids_work_of(layer, sequences), inputs.num_ids


def prove(layer: EmbeddingLayer, sequences: Any, path: Any, expected: Any, weight: Any) -> None:
    """Check every id and every number of an embedding, and that no path was replaced by another.

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
    """Check every id of a call that embeds nothing.

    Raises:
        SystemExit: one differs.
    """
    if not torch.equal(layer.ids_from_strings(sequences).long().cpu(), expected):
        sys.exit("the ids alone are wrong")


def ids_work_of(layer: EmbeddingLayer, sequences: Any) -> Callable[[], None]:
    """Make a call whose ids stay on the device."""

    def work() -> None:
        layer.ids_from_strings(sequences)

    return work


def work_of(layer: EmbeddingLayer, sequences: Any, path: Any) -> Callable[[], None]:
    """Make a call that discards each part of the result."""

    def work() -> None:
        for part in layer.embed_from_strings(sequences, path):
            del part

    return work


if __name__ == "__main__":
    main()
