"""The bulk calls of the GPU engine on one text, with the expected results; `bus` times them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.corpora import CORPORA, numbers
from benchmarks.support.texts import Bytes, Text, cut_rows, repeated
from gpu.engine import GpuEngine
from gpu.runtime.device import Device
from gpu.streaming import encode_stream
from gpu.windows import DeviceWindows, encode_windows
from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.vocabulary import Vocabulary

Arrays = tuple[NDArray[Any], ...]
Right = dict[str, NDArray[Any]]
Keep = Callable[[NDArray[Any]], NDArray[Any]]
"""Copies an array to where the calls are to find it."""
ONCE_BYTES = 1 << 21  # What is compared with the CPU engine, and then repeated.
WINDOW = 512
CONTENT, SPANS = (EncodeOptions(add_special_tokens=False, spans=spans) for spans in (False, True))


class Memory:
    """Pinned arrays, freed at the end of a `with` block."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._taken = list[Bytes]()

    def empty(self, num_bytes: int) -> Bytes:
        """Allocate pinned uint8[num_bytes], not initialized."""
        self._taken.append(self.device.allocate_pinned(max(1, num_bytes)))
        return self._taken[-1][:num_bytes]

    def copy(self, array: NDArray[Any]) -> NDArray[Any]:
        """Copy an array to pinned memory."""
        memory = self.empty(array.nbytes)
        memory[:] = array.view(np.uint8)
        return memory.view(array.dtype)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        while self._taken:
            self.device.free_pinned(self._taken.pop())


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the engine.

    Attributes:
        name: the call, and where its arguments lie.
        given: its arguments, as arrays.
        run: calls it once and returns its answer.
        right: the expected answer.
    """

    name: str
    given: Arrays
    run: Callable[[], Arrays]
    right: Arrays


def num_once(rows: int, row_bytes: int) -> int:
    """Return the number of different rows of about `row_bytes` bytes, which are then repeated."""
    return min(rows, 1 << (ONCE_BYTES // row_bytes).bit_length() - 1)


def make_text(name: str, data: Path, rows: int, row_bytes: int) -> Text:
    """Make rows of a corpus, or of random bases: `ONCE_BYTES` of them again and again."""
    once = num_once(rows, row_bytes)
    if name == "bases":
        drawn = numbers(1, ONCE_BYTES // 8).view(np.uint8) & 3
        bytes_ = np.frombuffer(b"ACGT", np.uint8)[drawn]
    else:
        bytes_ = CORPORA[name](data, ONCE_BYTES)
    return repeated(cut_rows(name, bytes_, once, row_bytes), rows // once)


def right_answers(vocabulary: Vocabulary, text: Text) -> Right:
    """Compute the rows' ids, offsets, counts and spans by the CPU engine."""
    num_rows = len(text.offsets) - 1
    rows = num_once(num_rows, round(len(text.data) / num_rows))
    times = num_rows // rows
    offsets = text.offsets[: rows + 1]
    batch = Batch(data=text.data[: offsets[-1]], offsets=offsets, options=SPANS)
    once = CpuEngine().encode(vocabulary, batch)
    assert once.spans is not None and not once.errors
    counts = np.tile(np.diff(once.offsets), times)
    return {
        "ids": np.tile(once.ids.astype(np.int32), times),
        "offsets": offsets_from_lengths(counts),
        "counts": counts,
        "spans": np.tile(once.spans, (times, 1)),
    }


def calls_of(
    engine: GpuEngine,
    memory: Memory,
    vocabulary: Vocabulary,
    text: Text,
    right: Right,
    narrow: type[Any],
) -> Iterator[Call]:
    """List the calls that are timed on a text."""
    for place in ("pinned", "ordinary"):
        keep = memory.copy if place == "pinned" else np.copy
        yield from _encode_calls(engine, vocabulary, text, right, narrow, keep, place)
        yield from _other_calls(engine, vocabulary, text, right, keep, place)
        if text.name == "bases" and vocabulary.kind in ("characters", "kmers"):
            yield _windows_call(engine, vocabulary, text, right, keep, place)
    rows = zip(text.offsets[:-1].tolist(), text.offsets[1:].tolist(), strict=True)
    texts = [text.data[begin:end].tobytes().decode() for begin, end in rows]
    answer = right["ids"], right["offsets"]

    def strings() -> Arrays:
        encoded = engine.encode(vocabulary, Batch(texts, options=CONTENT))
        return encoded.ids, encoded.offsets

    yield Call("encode, list of strings", (text.data, text.offsets), strings, answer)


def _encode_calls(
    engine: GpuEngine,
    vocabulary: Vocabulary,
    text: Text,
    right: Right,
    narrow: type[Any],
    keep: Keep,
    place: str,
) -> Iterator[Call]:
    data, out = keep(text.data), keep(np.zeros(4 * len(text.data), np.uint8))
    given, ids, offsets = (data, text.offsets), right["ids"], right["offsets"]

    def encode_ids() -> Arrays:
        return engine.encode_ids(vocabulary, data, text.offsets)

    def encode(options: EncodeOptions, dtype: type[Any]) -> Arrays:
        batch = Batch(data=data, offsets=text.offsets, options=options, id_dtype=dtype)
        encoded = engine.encode(vocabulary, batch)
        more = () if encoded.spans is None else (encoded.spans,)
        return encoded.ids, encoded.offsets, *more

    def stream(dtype: type[Any]) -> Arrays:
        ends = encode_stream(engine, vocabulary, data, text.offsets, out.view(dtype))
        return out.view(dtype)[: ends[-1]], ends

    yield Call(f"encode_ids, {place}", given, encode_ids, (ids, offsets))
    yield Call(f"encode, {place}", given, lambda: encode(CONTENT, np.int32), (ids, offsets))
    if narrow is not np.int32:
        right_arrays: Arrays = ids.astype(narrow), offsets
        bits = f"{8 * np.dtype(narrow).itemsize} bits"
        yield Call(f"encode, {bits}, {place}", given, lambda: encode(CONTENT, narrow), right_arrays)
        yield Call(f"stream, {bits}, {place}", given, lambda: stream(narrow), right_arrays)
    right_arrays = ids, offsets, right["spans"]
    yield Call(f"encode, spans, {place}", given, lambda: encode(SPANS, np.int32), right_arrays)


def _other_calls(
    engine: GpuEngine, vocabulary: Vocabulary, text: Text, right: Right, keep: Keep, place: str
) -> Iterator[Call]:
    data = keep(text.data)

    def count() -> Arrays:
        batch = Batch(data=data, offsets=text.offsets, options=CONTENT)
        return (engine.count(vocabulary, batch)[0],)

    yield Call(f"count, {place}", (data, text.offsets), count, (right["counts"],))
    for dtype in (np.int32, np.int64):
        if text.name == "bases" and vocabulary.kind != "characters":
            continue  # Other letters' ids do not spell the text.
        ids = keep(right["ids"].astype(dtype))

        def decode(ids: NDArray[Any] = ids) -> Arrays:
            return engine.decode(vocabulary, ids, right["offsets"], False)[:2]

        name = f"decode, {np.dtype(dtype).name}, {place}"
        yield Call(name, (ids, right["offsets"]), decode, (text.data, text.offsets))


def _windows_call(
    engine: GpuEngine, vocabulary: Vocabulary, text: Text, right: Right, keep: Keep, place: str
) -> Call:
    batch = Batch(data=keep(text.data), offsets=text.offsets, options=CONTENT)

    def windows() -> DeviceWindows:
        return encode_windows(engine, vocabulary, batch, window=WINDOW, stride=WINDOW, pad_id=0)

    made = windows()
    ids = made.input_ids.to_host()[made.attention_mask.to_host() != 0]
    if not np.array_equal(ids, right["ids"]):
        raise SystemExit("windows of other ids, nothing is timed")
    given, rows = (text.data, text.offsets), offsets_from_lengths(-(-right["counts"] // WINDOW))
    return Call(f"windows, {place}", given, lambda: (windows().rows,), (rows,))
