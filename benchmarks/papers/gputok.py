"""GPUTok: its sweep of WikiText windows (Tables 1 and 2, Figures 2 to 4), and its allocations.

Source: V. G. Kadamba and K. Jaisankar, GPUTok: GPU Accelerated Byte Level BPE Tokenization,
sections 4 and 5.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.papers.edit_distance import distance_by_pieces
from benchmarks.papers.kernels.block_merge import BLOCK_SIZES, EXACT
from benchmarks.papers.kernels.merges_alone import Ids, chunks_of
from benchmarks.papers.session import Differs, Part, Row, Rows, Session
from benchmarks.papers.text_ways import OURS_KERNELS, TextWays
from benchmarks.support.timing import Run, clocked

LENGTHS = tuple(1 << power for power in range(8, 18))
WINDOWS = 4
CHUNK_BYTES = 4096
THREADS = 512
OPTIMIZED, BASELINE, MINIMA = "merge_leftmost", "merge_scanned", "merge_local_minima"
NAMES = {OPTIMIZED: "GPUTok optimized", BASELINE: "GPUTok baseline", MINIMA: "local minima"}


def windows(ways: TextWays, ids: Ids, num_ids: int) -> list[str]:
    """Return the texts of at most WINDOWS windows of `num_ids` ids, spread over all ids."""
    whole = len(ids) // num_ids
    step = max(1, whole // WINDOWS)
    begins = [number * num_ids for number in range(0, whole, step)][:WINDOWS]
    return [ways.tokenizer.decode(ids[begin : begin + num_ids]) for begin in begins]


def similarity_rows(session: Session) -> Rows:
    """Compare the ids of merges alone, whole and in chunks, with those of the pattern."""
    for ways, num_ids, texts, expected in _lengths(session):
        whole = ways.merges_alone.encode(texts)
        chunked = [in_chunks(ways.merges_alone.encode_bytes, text) for text in texts]
        widths = [len(token or b"") for token in ways.vocabulary.tokens]
        row: Row = {"table": "similarity", "tokens": num_ids, "windows": len(texts)}
        for name, found in (("whole", whole), ("chunks", chunked)):
            alike = [_alike(*pair, widths) for pair in zip(expected, found, strict=True)]
            row |= {
                f"different_{name}": statistics.mean(map(_differ, expected, found)),
                f"similarity_{name}": statistics.mean(alike),
                f"overlap_{name}": statistics.mean(map(_overlap, expected, found)),
            }
        yield row


def sweep_rows(session: Session) -> Rows:
    """Time one window at a time."""
    for ways, num_ids, texts, ids in _lengths(session):
        length: Row = {"tokens": num_ids, "windows": len(texts)}
        runs = _window_runs(ways, texts)
        for name, found in session.in_turns(runs).items():
            yield length | {"table": "sweep", "way": name, "seconds": found}
        if session.gpu is not None:
            yield from _kernel_rows(session, ways, texts[0], ids[0], length)


def _lengths(session: Session) -> Iterator[tuple[TextWays, int, list[str], list[Ids]]]:
    """Yield the windows of each length, with their ids, after comparing the ids of all ways."""
    text = session.text("wikitext2_test.raw.txt")
    if text is None:
        return
    ways = TextWays(session)
    [ids] = ways.prove([text])
    for num_ids in LENGTHS:
        texts = windows(ways, ids, num_ids)
        if not texts:
            session.leave_out(f"WikiText's test split has no window of {num_ids} tokens")
            continue
        yield ways, num_ids, texts, ways.prove(texts)


def in_chunks(encode: Callable[[Sequence[bytes]], list[Ids]], text: str) -> Ids:
    """Encode a text chunk by chunk and join the ids."""
    return [*itertools.chain.from_iterable(encode(chunks_of(text.encode(), CHUNK_BYTES)))]


def _differ(first: Ids, second: Ids) -> float:
    return float(first != second)


def _alike(first: Ids, second: Ids, widths: Sequence[int]) -> float:
    distance = distance_by_pieces(first, second, widths)
    return 1 - distance / max(len(first), len(second), 1)


def _overlap(first: Ids, second: Ids) -> float:
    one, other = {*first}, {*second}
    return len(one & other) / max(1, len(one | other))


def _window_runs(ways: TextWays, texts: list[str]) -> dict[str, Run]:
    """Return functions that encode all windows one by one by a way, and return the mean seconds."""

    def timed(encode: Callable[[list[str]], Any]) -> Run:
        clock = clocked(lambda: [encode([text]) for text in texts])
        return lambda: clock() / len(texts)

    return {name: timed(way.encode) for name, way in ways.ways.items()}


def _kernel_rows(session: Session, ways: TextWays, text: str, ids: Ids, length: Row) -> Rows:
    """Time the papers' kernels on a window, alone and from host to host, beside ours."""
    chunks = chunks_of(text.encode(), CHUNK_BYTES)
    kernels, placed = ways.kernels, ways.kernels.put(chunks)
    expected = ways.merges_alone.encode_bytes(chunks)
    runs: dict[str, Run] = {}
    for kernel, threads in itertools.product(NAMES, BLOCK_SIZES):
        kernels.launch(kernel, placed, threads)
        found = kernels.fetch(placed)
        if kernel in EXACT and found != expected:
            raise Differs(f"{kernel} with {threads} threads has other ids than merges alone")
        if kernel == MINIMA and threads == THREADS:
            yield length | _minima_row(ways, expected, found)
        runs[f"{NAMES[kernel]}, {threads} threads, kernel"] = _kernel_run(
            kernels, kernel, placed, threads
        )
    for kernel in (OPTIMIZED, BASELINE):
        for words, is_pooled in (("", False), (", pooled memory", True)):
            name = f"{NAMES[kernel]}{words}"
            runs[name] = _call_run(kernels, kernel, text, is_pooled)
    with ways.our_kernels([text], [ids]) as ours:
        runs[OURS_KERNELS] = ours
        for name, found_seconds in session.in_turns(runs).items():
            yield length | {"table": "sweep", "way": name, "seconds": found_seconds}


def _minima_row(ways: TextWays, expected: list[Ids], found: list[Ids]) -> Row:
    """Measure how much merging local minima differs from merging in order."""
    widths = [len(token or b"") for token in ways.vocabulary.tokens]
    alike = [_alike(*pair, widths) for pair in zip(expected, found, strict=True)]
    return {
        "table": "local minima",
        "chunks": len(expected),
        "share_different": statistics.mean(map(_differ, expected, found)),
        "similarity": statistics.mean(alike),
    }


def _kernel_run(kernels: Any, kernel: str, placed: Any, threads: int) -> Run:
    return lambda: float(kernels.seconds(kernel, placed, threads))


def _call_run(kernels: Any, kernel: str, text: str, is_pooled: bool) -> Run:
    """Time a call from a string to a list of ids; without a pool, the driver allocates memory."""

    def call() -> None:
        in_chunks(lambda chunks: kernels.encode(kernel, chunks, THREADS), text)

    def call_without_pool() -> None:
        with kernels.without_pool():
            call()

    return clocked(call if is_pooled else call_without_pool)


PARTS = (
    Part("sweep", "gputok", "Tables 1 and 2, Figures 1 to 4", "both", 40, sweep_rows),
    Part("similarity", "gputok", "section 5.2 (ids)", "cpu", 60, similarity_rows),
)
