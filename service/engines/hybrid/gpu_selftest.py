"""Compares the GPU's ids with the reference's, and its complete answers with the CPU engine's.

The callers decide when to compare, and what follows from a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered, OutOfMemory
from gpu.runtime.stage_timer import StageTimes
from gpu.text.nfc_check import is_in_nfc, only_composes
from service.engines.base import DeviceMemory, Engine, SelfTest
from service.engines.encoder import ReferenceEncoder
from service.engines.selftest import TEXTS, compare, make_test_texts
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.post_processing import Content
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.tables import may_split_kmers
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
LONG_ROW = 100_000  # Characters; more than any kernel handles at once.
NOT_UTF8 = (b"abc\xff", b"\xc3", b"\xed\xa0\x80", b"ok", b"\xf4\x90\x80\x80 x", b"\xc0\xaf", b"")
OPTIONS = (
    EncodeOptions(),
    EncodeOptions(spans=True),
    EncodeOptions(add_special_tokens=False, special="plain", spans=True),
    EncodeOptions(special="refuse"),
    EncodeOptions(max_length=3, spans=True),
    EncodeOptions(max_length=5, truncation_side="left", special="plain"),
    EncodeOptions(max_length=0),
)
SEQUENCE_OPTIONS = (
    EncodeOptions(reverse_complement=True, spans=True),
    EncodeOptions(circular=True, spans=True),
    EncodeOptions(circular=True, reverse_complement=True, max_length=5),
)
"""Options that only the kernels for sequences support; for text, the CPU engine handles them."""


class Gpu(Protocol):
    """The methods of gpu.engine.GpuEngine that the service calls.

    No call changes the current CUDA device of the calling thread.
    """

    @property
    def device(self) -> object:
        """The object to which `device` refers in device memory that this GPU opens."""

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Upload a vocabulary, and return its bytes; raises NotCovered or OutOfMemory."""

    def unload(self, digest: str) -> None:
        """Unload a vocabulary; calls that are using it still finish."""

    def is_resident(self, digest: str) -> bool:
        """Return whether a vocabulary is on the device now."""

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """Allocate pinned memory for texts; None if none is free."""

    def open_shared(self, handle: bytes, num_bytes: int) -> DeviceMemory:
        """Open device memory of another process; raises gpu.errors.BadHandle."""

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory:
        """Page-lock a part of a memory file; raises ValueError or OutOfMemory."""

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Encode texts in shared memory, and return the offsets of the ids."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row."""

    def count(
        self, vocabulary: Vocabulary, batch: Batch
    ) -> tuple[NDArray[np.int64], dict[int, RowError]]:
        """Count the ids of each row; return the counts and the errors of refused rows."""

    def decode(
        self, vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[NDArray[np.uint8], Int64s, dict[int, RowError]]:
        """Decode each row; return bytes, offsets, and the errors of refused rows."""

    def memory(self) -> dict[str, int]:
        """Return the bytes of the device by purpose."""

    @property
    def page_locked_bytes(self) -> int:
        """The bytes of host memory that are page-locked for the device."""

    @property
    def stage_times(self) -> StageTimes:
        """The times of the stages of sampled batches."""

    def close(self) -> None:
        """Release all memory."""


class _GpuEncoder:
    """Adapts the GPU to an encoder, which returns the ids of the texts alone.

    Attributes:
        error: the last error of the GPU, as opposed to a difference of ids; None without an error.
    """

    name = "gpu"

    def __init__(self, gpu: Gpu, vocabulary: Vocabulary) -> None:
        self.gpu = gpu
        self.vocabulary = vocabulary
        self.error: Exception | None = None

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        own = replace(options, add_special_tokens=False, max_length=None)
        try:
            encoded = self.gpu.encode(self.vocabulary, batch.select(range(len(batch)), own))
        except Exception as error:
            self.error = error
            raise
        return Content(encoded.ids, encoded.offsets, encoded.spans, encoded.errors)


def compare_with_cpu(gpu: Gpu, cpu: Engine, vocabulary: Vocabulary) -> SelfTest:
    """Compare ids and spans with the reference's, and whole answers with the CPU engine's.

    Raises:
        Exception: the GPU failed on a text.
    """
    encoder = _GpuEncoder(gpu, vocabulary)
    all_texts = make_test_texts(vocabulary)
    texts = _covered_texts(vocabulary, all_texts)
    self_test = compare(encoder, ReferenceEncoder(vocabulary), texts)
    if encoder.error is not None:
        raise encoder.error
    if self_test.num_different:
        return self_test
    damaged = () if may_split_kmers(vocabulary, "\ufffd") else NOT_UTF8
    batches = [*_batches(texts, _covered_texts(vocabulary, TEXTS), damaged)]
    results = [_difference(gpu, cpu, vocabulary, batch) for batch in batches]
    results.append(_decode_difference(gpu, cpu, vocabulary, Batch(texts)))
    results += [_check_refused(gpu, vocabulary, text) for text in all_texts if text not in texts]
    differences = [result for result in results if result]
    return replace(
        self_test,
        num_texts=len(texts) + len(results),
        num_different=len(differences),
        first_difference=differences[0] if differences else "",
    )


def _covered_texts(vocabulary: Vocabulary, texts: Sequence[str]) -> list[str]:
    """List the texts that the GPU has to encode."""
    return [text for text in texts if not _why_not_covered(vocabulary, text)]


def _why_not_covered(vocabulary: Vocabulary, text: str) -> str:
    """Return why the GPU must pass a text to the CPU engine; "" if it must not."""
    if only_composes(vocabulary) and not is_in_nfc(text):
        return "NFC may change it"
    return "k-mers may be taken apart" if may_split_kmers(vocabulary, text) else ""


def _check_refused(gpu: Gpu, vocabulary: Vocabulary, text: str) -> str:
    """Check that the GPU refuses an unsupported text; return the fault, or ""."""
    try:
        gpu.encode(vocabulary, Batch([text]))
    except (NotCovered, OutOfMemory):
        return ""
    return f"{text[:80]!r}: the GPU has ids, though {_why_not_covered(vocabulary, text)}"


def _batches(
    texts: Sequence[str], some: Sequence[str], damaged: Sequence[bytes]
) -> Iterator[Batch]:
    """Make batches: all texts with each option, mixed options, long rows and damaged rows.

    Args:
        texts: all texts.
        some: the texts that are repeated for long rows.
        damaged: rows that are not UTF-8.
    """
    for options in (*OPTIONS, *SEQUENCE_OPTIONS):
        yield Batch(texts, options=options)
    mixed = [OPTIONS[row % len(OPTIONS)] for row in range(len(texts))]
    yield Batch(texts, options=mixed)
    # U+017F is left out, as the CPU engine would have to build another encoder for it.
    joined = " ".join([text for text in some if "\u017f" not in text])
    yield Batch([joined * (LONG_ROW // len(joined)) + "end", "", joined + "end"])
    yield Batch.from_bytes([*damaged, *(text.encode() for text in texts[:20])], OPTIONS[1])


def _difference(gpu: Gpu, cpu: Engine, vocabulary: Vocabulary, batch: Batch) -> str:
    """Describe the first row whose answers differ between the GPU and the CPU engine, or ""."""
    try:
        encoded = gpu.encode(vocabulary, batch)
        counts, errors = gpu.count(vocabulary, batch)
    except OutOfMemory:
        return ""  # A batch that does not fit now will not be answered later either.
    except NotCovered:
        if batch.options in SEQUENCE_OPTIONS:
            return ""
        raise
    expected = cpu.encode(vocabulary, batch)
    options = batch.options
    for row in range(len(batch)):
        own = options if isinstance(options, EncodeOptions) else options[row]
        actual_row, expected_row = _row(encoded, row, own), _row(expected, row, own)
        if actual_row != expected_row:
            text = batch.row_bytes(row)[:80]
            return f"{text!r} ({own}): {actual_row}, but the CPU engine says {expected_row}"[:1000]
    if counts.tolist() != np.diff(encoded.offsets).tolist() or errors != encoded.errors:
        return "counts are not the numbers of the encoded ids"
    return ""


def _row(encoded: Encoded, row: int, options: EncodeOptions) -> object:
    """Return the complete answer of a row in Python's own types."""
    if row in encoded.errors:
        return encoded.errors[row]
    begin, end = encoded.offsets[row : row + 2].tolist()
    answer: list[object] = [encoded.ids[begin:end].tolist()]
    if options.spans:
        answer.append(None if encoded.spans is None else encoded.spans[begin:end].tolist())
    if encoded.num_tokens is not None and encoded.num_tokens[row] > end - begin:
        answer.append(int(encoded.num_tokens[row]))
        answer.append(None if encoded.kept is None else encoded.kept[row].tolist())
    return answer


def _decode_difference(gpu: Gpu, cpu: Engine, vocabulary: Vocabulary, batch: Batch) -> str:
    """Decode a batch's ids and some invalid ids on both; return a difference, or ""."""
    encoded = cpu.encode(vocabulary, batch)
    ids = np.concatenate([encoded.ids, np.array([0, -1, len(vocabulary), 0], np.int64)])
    last = int(encoded.offsets[-1])
    offsets = np.concatenate([encoded.offsets, np.array([last + 2, last + 3, last + 4])])
    for skip in (False, True):
        expected = cpu.decode(vocabulary, ids, offsets, skip)
        try:
            data, places, errors = gpu.decode(vocabulary, ids, offsets, skip)
        except NotCovered:
            return ""
        equal = np.array_equal(data, expected.data) and np.array_equal(places, expected.offsets)
        if not equal or errors != expected.errors:
            return f"decoded bytes differ (skip_special_tokens={skip})"
    return ""
