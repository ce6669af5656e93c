"""The ways from bases to ids that `dna` times: our engines, other libraries, Python and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.dna.fast_references import OWN, FastReference
from benchmarks.dna.proofs import joined
from benchmarks.dna.sequences import Sequences
from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.support.timing import Run, clocked
from gpu.host.cores import usable_cores
from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch
from vocabularies.model.types import Bpe, Characters
from vocabularies.model.vocabulary import Vocabulary

FRONT_BASES, LEAST_BASES = 1 << 18, 1 << 16  # For what is slow, and for what is slower still.
Ids = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Way:
    """One way from bases to ids.

    Attributes:
        run: encodes once and returns the seconds.
        ids: returns the ids of the last run, joined.
        bases: the number of bases that it encodes.
    """

    run: Run
    ids: Callable[[], Ids]
    bases: int


def kept(work: Callable[[], Any], bases: int, ids: Callable[[Any], Ids]) -> Way:
    """Time a way by the wall clock and keep its result for the proof."""
    last: list[Any] = []

    def run() -> None:
        last.clear()
        last.append(work())

    return Way(clocked(run), lambda: ids(last[0]), bases)


def front(rows: Sequences, bases: int | None = None) -> Sequences:
    """Return the first rows, of `bases` (or FRONT_BASES) bases in total; the last is truncated."""
    bases = bases or FRONT_BASES
    count = int(np.searchsorted(rows.offsets, bases))
    offsets = np.minimum(rows.offsets[: count + 1], bases)
    return Sequences(rows.name, rows.data[: offsets[-1]], offsets)


def front_for_all_cores(rows: Sequences) -> int:
    """Return the number of bases that keeps every core busy, if each row is encoded on one core."""
    lengths = np.diff(rows.offsets)
    return max(FRONT_BASES, usable_cores() * int(lengths.max()) if len(lengths) > 1 else 0)


def cpu_ways(engine: CpuEngine, vocabulary: Vocabulary, rows: Sequences) -> dict[str, Way]:
    """List our CPU engine's ways, from strings and from bytes."""
    is_slow = engine.load(vocabulary).encoder.startswith("tokenizers")
    rows = front(rows) if is_slow else rows
    size = len(rows.data)

    def from_bytes() -> Batch:
        return Batch(data=rows.data, offsets=rows.offsets, options=OWN)

    def from_strings() -> Batch:
        return Batch(rows.texts, options=OWN)

    return {
        "cpu engine, bytes": kept(
            lambda: engine.encode(vocabulary, from_bytes()), size, lambda e: e.ids
        ),
        "cpu engine, list[str]": kept(
            lambda: engine.encode(vocabulary, from_strings()), size, lambda e: e.ids
        ),
    }


def other_ways(
    vocabulary: Vocabulary,
    name: str,
    fast_reference: FastReference,
    rows: Sequences,
    data: Path | None,
) -> Iterator[tuple[str, Way]]:
    """List other libraries, Python and NumPy."""
    if isinstance(vocabulary.model, Characters):
        ids = joined(fast_reference([chr(byte) for byte in range(128)]))
        table = bytes(np.resize(ids, 256).astype(np.uint8))
        raw, wide = rows.data.tobytes(), np.resize(ids, 256)
        own = np.frombuffer
        yield (
            "bytes.translate",
            kept(lambda: raw.translate(table), len(raw), lambda b: own(b, "u1")),
        )
        yield "NumPy look-up", kept(lambda: wide[rows.data], len(raw), lambda found: found)
    elif isinstance(vocabulary.model, Bpe):
        front_rows = front(rows, front_for_all_cores(rows))
        yield (
            "tokenizers, all cores",
            kept(lambda: fast_reference(front_rows.texts), len(front_rows.data), joined),
        )
    if name == "nt_v2" and (slow := slow_tokenizer(data)) is not None:
        front_rows = front(rows, LEAST_BASES)
        size = len(front_rows.data)
        yield (
            "transformers EsmTokenizer",
            kept(lambda: [slow(t) for t in front_rows.texts], size, joined),
        )


def slow_tokenizer(data: Path | None) -> Callable[[str], list[int]] | None:
    """Load the Nucleotide Transformer's own tokenizer, if it is installed."""
    file = None if data is None else data / "dna_vocab/nt/nt_v2_vocab.txt"
    try:
        from transformers import EsmTokenizer
    except ImportError:
        return None
    if file is None or not file.is_file():
        return None
    tokenizer = EsmTokenizer(str(file))
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False))


@contextmanager
def gpu_ways(gpu: GpuWays, vocabulary: Vocabulary, rows: Sequences) -> Iterator[dict[str, Any]]:
    """List the GPU engine's ways: kernels alone, to the device and to the host; and copies."""
    size, pinned, texts = len(rows.data), gpu.pinned(rows.data), rows.texts
    with ExitStack() as stack:
        kernels = stack.enter_context(gpu.kernels(vocabulary, pinned, rows.offsets))
        copies = stack.enter_context(gpu.copies(pinned))
        forms: dict[str, Callable[[], Batch]] = {
            "pinned": lambda: Batch(data=pinned, offsets=rows.offsets),
            "bytes": lambda: Batch(data=rows.data, offsets=rows.offsets),
            "list[str]": lambda: Batch(texts),
        }
        to_device = {
            name: stack.enter_context(gpu.batch_to_device(vocabulary, make, size))
            for name, make in forms.items()
        }

        def call() -> Ids:
            return gpu.encode(vocabulary, rows.data, rows.offsets)[0]

        def call_strings() -> Any:
            return gpu.engine.encode(vocabulary, Batch(texts, options=OWN)).ids

        yield {
            "gpu kernels, device to device": Way(kernels.run, kernels.ids, size),
            **{
                f"gpu engine, {name} to device": Way(clocked(way.run), way.ids, size)
                for name, way in to_device.items()
            },
            "gpu engine, bytes": kept(call, size, lambda ids: ids),
            "gpu engine, list[str]": kept(call_strings, size, lambda ids: ids),
            **{f"copy {name}": Way(run, lambda: rows.data, size) for name, run in copies.items()},
        }
    gpu.device.free_pinned(pinned)
