"""DNATok: Tables S1 and S2 and the sweeps of its figures, staging, encoding and copies apart.

Source: E. Niktab and H. Patel, DNATokenizer: A GPU-first Byte-to-Identifier Tokenizer, section 3.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.papers.dna_ways import (
    ENCODE_64,
    SLOW,
    STAGING_32,
    STAGING_64,
    DnaWay,
    Letters,
    front_of,
    host_ways,
    rows_of,
)
from benchmarks.papers.session import Differs, Part, Row, Rows, Session
from benchmarks.support.timing import Run, clocked
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

CONFIGURATIONS = {"standard": (4096, 512), "large batch": (8192, 512), "long": (2048, 2048)}
BATCHES, LENGTHS = (256, 1024, 2048, 16384), (64, 256, 1024, 4096, 16384)
SWEEP_LENGTH, SWEEP_BATCH = 512, 1024
WIDTH = 128
VOCABULARY = "hyenadna"
DEVICE = "cuda"
"""The device of torch; the tests have a CPU."""
OURS_LIST, OURS_PINNED = "warptok GPU, list[str] to ids", "warptok GPU, pinned bytes to ids"
OURS_STAGING, OURS_KERNELS = "warptok staging, list[str] to pinned bytes", "warptok GPU, kernels"
STREAMS = {
    "baseline": ("ids", "int64", False),
    "int32 only": ("ids", "int32", False),
    "overlap only": ("ids", "int64", True),
    "both": ("ids", "int32", True),
    "bytes": ("bytes", "int32", True),
}
"""The path, the type of staged ids and the overlap of each way to stream; `bytes` is ours."""


def shapes() -> Iterator[tuple[str, int, int]]:
    """List (figure, rows, letters of a row): Table S1's, then those of the sweeps."""
    for name, (num_rows, num_letters) in CONFIGURATIONS.items():
        yield name, num_rows, num_letters
    for num_rows in BATCHES:
        yield "batch sweep", num_rows, SWEEP_LENGTH
    for num_letters in LENGTHS:
        yield "length sweep", SWEEP_BATCH, num_letters


def encode_rows(session: Session) -> Rows:
    """Time rows of letters to ids on the host, and on a GPU to ids on the device."""
    ways = host_ways(session)
    expected_of = Letters(load(VOCABULARY))
    for figure, num_rows, num_letters in shapes():
        texts = rows_of(num_rows, num_letters)
        expected = expected_of.encode(texts)
        shape: Row = {"table": "encode", "figure": figure, "rows": num_rows, "letters": num_letters}
        runs = {name: _host_run(name, way, texts, expected) for name, way in ways.items()}
        with ExitStack() as stack:
            if session.gpu is not None:
                runs |= _device_runs(session.gpu, texts, expected, stack)
            found = session.in_turns({name: run for name, (run, _) in runs.items()})
        for name, seconds in found.items():
            yield shape | {"way": name, "ids": runs[name][1], "seconds": seconds}


def _host_run(name: str, way: DnaWay, texts: list[str], expected: Any) -> tuple[Run, int]:
    """Compare the ids of a way; return the function that times it, and the number of ids."""
    given = front_of(texts) if name in SLOW else texts
    _prove(name, way.matrix(way.encode(given)), expected[: len(given)])
    return clocked(lambda: way.encode(given)), len(given) * expected.shape[1]


def _prove(name: str, found: Any, expected: Any) -> None:
    if not np.array_equal(found, expected):
        raise Differs(f"{name} has other ids than DNATok's table")


def _device_runs(
    gpu: GpuWays, texts: list[str], expected: Any, stack: ExitStack
) -> dict[str, tuple[Run, int]]:
    """List our ways to ids on the device, and our kernels alone."""
    layer, pinned = _layer(), _pinned(texts)
    gpu.engine.load(load(VOCABULARY))
    runs: dict[str, tuple[Run, int]] = {}
    for name, given in ((OURS_LIST, texts), (OURS_PINNED, pinned)):
        _prove(name, layer.ids_from_strings(given).cpu().numpy(), expected)

        def work(given: Any = given) -> None:
            layer.ids_from_strings(given)
            wait()

        runs[name] = clocked(work), expected.size
    runs[OURS_STAGING] = clocked(lambda: gpu.engine.join(Batch([*texts]))), expected.size
    offsets = np.arange(len(pinned) + 1, dtype=np.int64) * pinned.shape[1]
    placed = gpu.kernels(load(VOCABULARY), pinned.reshape(-1), offsets)
    kernels = stack.enter_context(placed)
    kernels.run()
    _prove(OURS_KERNELS, kernels.ids().reshape(expected.shape), expected)
    runs[OURS_KERNELS] = kernels.run, expected.size
    return runs


def wait() -> None:
    """Wait until the device has done its work."""
    import torch

    if DEVICE != "cpu":
        torch.cuda.synchronize()


def _layer(**settings: Any) -> Any:
    """Make DNATok's layer with a table of WIDTH numbers for each id."""
    import torch

    from gpu.embedding.layer import EmbeddingLayer

    num_ids = len(load(VOCABULARY))
    table = torch.nn.Embedding(num_ids, WIDTH, device=DEVICE).requires_grad_(False)
    return EmbeddingLayer(table, _discovery(), device=DEVICE, **settings)


@functools.cache
def _discovery() -> Any:
    from gpu.embedding.tokenizer_discovery import discover

    return discover(load(VOCABULARY))


def _pinned(texts: list[str]) -> Any:
    """Put the letters of rows into pinned memory."""
    letters = np.frombuffer("".join(texts).encode(), np.uint8)
    memory = _pinned_bytes(len(letters))
    memory[:] = letters
    return memory.reshape(len(texts), -1)


def _pinned_bytes(size: int) -> Any:
    import torch

    return torch.empty(size, dtype=torch.uint8, pin_memory=DEVICE != "cpu").numpy()


def transfer_rows(session: Session) -> Rows:
    """Time the copy of staged ids, of new ones and of letters to the device."""
    import torch

    letters = Letters(load(VOCABULARY))
    for figure, num_rows, num_letters in itertools.islice(shapes(), len(CONFIGURATIONS)):
        texts = rows_of(num_rows, num_letters)
        shape: Row = {"table": "transfer", "figure": figure}
        shape |= {"rows": num_rows, "letters": num_letters}
        sources = {
            "HF native": torch.from_numpy(letters.encode(texts)),
            ENCODE_64: torch.from_numpy(letters.encode(texts)),
            STAGING_64: torch.from_numpy(letters.stage(texts, "int64", _pinned_bytes)),
            STAGING_32: torch.from_numpy(letters.stage(texts, "int32", _pinned_bytes)),
            "letters (warptok)": torch.from_numpy(_pinned(texts)),
        }
        runs = {name: _copy_run(source) for name, source in sources.items()}
        for name, seconds in session.in_turns(runs).items():
            yield shape | {"way": name, "ids": num_rows * num_letters, "seconds": seconds}


def _copy_run(source: Any) -> Run:
    import torch

    target = torch.empty_like(source, device=DEVICE)

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        wait()

    return clocked(copy)


def stream_rows(session: Session) -> Rows:
    """Time rows of letters to embeddings on the device, with and without int32 and overlap."""
    import torch

    for figure, num_rows, num_letters in shapes():
        texts = rows_of(num_rows, num_letters)
        runs = {}
        for name, (path, dtype, is_pipelined) in STREAMS.items():
            layer = _layer(staging_dtype=getattr(torch, dtype), pipelined=is_pipelined)
            _prove_stream(layer, texts, path)
            runs[name] = _stream_run(layer, texts, path)
        shape: Row = {"table": "stream", "figure": figure, "rows": num_rows, "letters": num_letters}
        for name, seconds in session.in_turns(runs).items():
            yield shape | {"way": name, "ids": num_rows * num_letters, "seconds": seconds}


def _prove_stream(layer: Any, texts: list[str], path: str) -> None:
    """Compare every id of every part, as published code mixes rows from the third part on."""
    expected, end = Letters(load(VOCABULARY)).encode(texts), 0
    for part in layer.embed_from_strings(texts, path):
        _prove(f"path {path}", part.ids.cpu().numpy(), expected[part.begin : part.end])
        if part.begin != end:
            raise Differs(f"path {path} leaves out rows from {end} on")
        end = part.end
    if end != len(texts):
        raise Differs(f"path {path} gives {end} of {len(texts)} rows")


def _stream_run(layer: Any, texts: list[str], path: str) -> Run:

    def work() -> None:
        for part in layer.embed_from_strings(texts, path):
            del part
        wait()

    return clocked(work)


def needs_torch(rows: Callable[[Session], Rows]) -> Callable[[Session], Rows]:
    """Make a part report that it is left out if torch is not installed."""

    @functools.wraps(rows)
    def checked(session: Session) -> Rows:
        try:
            import torch  # noqa: F401
        except ImportError:
            session.leave_out("torch is not installed: nothing of DNATok's layer")
            return
        yield from rows(session)

    return checked


PARTS = (
    Part("encode", "dnatok", "Table S1 (encode), Figures 1, 4, 6 and 9", "both", 40, encode_rows),
    Part("transfer", "dnatok", "Table S1 (H2D), Figure 2", "gpu", 8, needs_torch(transfer_rows)),
    Part(
        "stream",
        "dnatok",
        "Tables S1 (E2E) and S2, Figures 3, 5, 7 and 8",
        "gpu",
        25,
        needs_torch(stream_rows),
    ),
)
