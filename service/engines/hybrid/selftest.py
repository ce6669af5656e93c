"""Compares the GPU with the reference, and with the CPU engine in all that is around the ids.

Knows neither when this is done nor what follows from a difference.
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
LONG_ROW = 100_000  # Characters; more than the kernels take in one piece anywhere.
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
TURNED = (
    EncodeOptions(reverse_complement=True, spans=True),
    EncodeOptions(circular=True, spans=True),
    EncodeOptions(circular=True, reverse_complement=True, max_length=5),
)
"""What the kernels of sequences do, too; those of text leave it to the CPU engine."""


class Gpu(Protocol):
    """What is asked of gpu.engine.GpuEngine, so that tests can make it fail."""

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> int:
        """Bytes on the device; raises NotCovered or OutOfMemory."""

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; running calls finish on it."""

    def is_resident(self, digest: str) -> bool:
        """Whether a vocabulary is on the device now."""

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """Pinned memory for texts; None where there is none left."""

    def open_shared(self, handle: bytes, num_bytes: int) -> DeviceMemory:
        """Device memory of another process; raises gpu.errors.BadHandle."""

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory:
        """A part of a file of memory, page-locked; raises ValueError or OutOfMemory."""

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Where the ids of each row begin that are where they are wanted."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row."""

    def count(
        self, vocabulary: Vocabulary, batch: Batch
    ) -> tuple[NDArray[np.int64], dict[int, RowError]]:
        """Numbers of ids, and refused rows."""

    def decode(
        self, vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[NDArray[np.uint8], Int64s, dict[int, RowError]]:
        """Bytes, offsets, and refused rows."""

    def memory(self) -> dict[str, int]:
        """Bytes of the device by what they are for."""

    @property
    def page_locked_bytes(self) -> int:
        """Memory of the host that is page-locked for the device."""

    @property
    def stage_times(self) -> StageTimes:
        """How long the stages of some batches took."""

    def close(self) -> None:
        """Give all memory back."""


class _OwnIds:
    """The GPU as an encoder: the texts' own ids.

    Attributes:
        error: why it did not answer, if it did not; that is no difference.
    """

    name = "gpu"

    def __init__(self, gpu: Gpu, vocabulary: Vocabulary) -> None:
        self.gpu, self.vocabulary = gpu, vocabulary
        self.error: Exception | None = None

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options."""
        own = replace(options, add_special_tokens=False, max_length=None)
        try:
            encoded = self.gpu.encode(self.vocabulary, batch.select(range(len(batch)), own))
        except Exception as error:
            self.error = error
            raise
        return Content(encoded.ids, encoded.offsets, encoded.spans, encoded.errors)


def compare_with_cpu(gpu: Gpu, cpu: Engine, vocabulary: Vocabulary) -> SelfTest:
    """Whether ids and spans are the reference's, and everything else is as the CPU engine has it.

    Raises:
        Exception: whatever the GPU raises instead of an answer.
    """
    own_ids, all_texts = _OwnIds(gpu, vocabulary), make_test_texts(vocabulary)
    texts = _answered(vocabulary, all_texts)
    self_test = compare(own_ids, ReferenceEncoder(vocabulary), texts)
    if own_ids.error is not None:
        raise own_ids.error
    if self_test.num_different:
        return self_test
    damaged = () if may_split_kmers(vocabulary, "\ufffd") else NOT_UTF8
    batches = [*_batches(texts, _answered(vocabulary, TEXTS), damaged)]
    wrong = [_difference(gpu, cpu, vocabulary, batch) for batch in batches]
    wrong.append(_decode_difference(gpu, cpu, vocabulary, Batch(texts)))
    wrong += [_answer_to(gpu, vocabulary, text) for text in all_texts if text not in texts]
    differences = [difference for difference in wrong if difference]
    return replace(
        self_test,
        num_texts=len(texts) + len(wrong),
        num_different=len(differences),
        first_difference=differences[0] if differences else "",
    )


def _answered(vocabulary: Vocabulary, texts: Sequence[str]) -> list[str]:
    """The texts that the GPU answers itself."""
    return [text for text in texts if not _why_left(vocabulary, text)]


def _why_left(vocabulary: Vocabulary, text: str) -> str:
    """Why the GPU must leave a text to the CPU engine; "" where it answers."""
    if only_composes(vocabulary) and not is_in_nfc(text):
        return "NFC may change it"
    return "k-mers may be taken apart" if may_split_kmers(vocabulary, text) else ""


def _answer_to(gpu: Gpu, vocabulary: Vocabulary, text: str) -> str:
    """That the GPU answers a text that it must leave; "" where it leaves it."""
    try:
        gpu.encode(vocabulary, Batch([text]))
    except (NotCovered, OutOfMemory):
        return ""
    return f"{text[:80]!r}: the GPU has ids, though {_why_left(vocabulary, text)}"


def _batches(
    texts: Sequence[str], some: Sequence[str], damaged: Sequence[bytes]
) -> Iterator[Batch]:
    """Texts with each of the options, or OPTIONS in turn, long ones of some, and damaged ones."""
    for options in (*OPTIONS, *TURNED):
        yield Batch(texts, options=options)
    mixed = [OPTIONS[row % len(OPTIONS)] for row in range(len(texts))]
    yield Batch(texts, options=mixed)
    # Without the letter for which the CPU engine would have to build another encoder.
    joined = " ".join([text for text in some if "\u017f" not in text])
    yield Batch([joined * (LONG_ROW // len(joined)) + "end", "", joined + "end"])
    yield Batch.from_bytes([*damaged, *(text.encode() for text in texts[:20])], OPTIONS[1])


def _difference(gpu: Gpu, cpu: Engine, vocabulary: Vocabulary, batch: Batch) -> str:
    """In what the first row that is not equal differs; "" where all are."""
    try:
        ours, (counts, errors) = gpu.encode(vocabulary, batch), gpu.count(vocabulary, batch)
    except OutOfMemory:
        return ""  # What does not fit now will not be answered later either.
    except NotCovered:
        if batch.options in TURNED:
            return ""
        raise
    theirs, options = cpu.encode(vocabulary, batch), batch.options
    for row in range(len(batch)):
        asked = options if isinstance(options, EncodeOptions) else options[row]
        got, wanted = _row(ours, row, asked), _row(theirs, row, asked)
        if got != wanted:
            text = batch.row_bytes(row)[:80]
            return f"{text!r} ({asked}): {got}, but the CPU engine says {wanted}"[:1000]
    if counts.tolist() != np.diff(ours.offsets).tolist() or errors != ours.errors:
        return "numbers of ids are not those of the ids"
    return ""


def _row(encoded: Encoded, row: int, options: EncodeOptions) -> object:
    """All that is said of a row, in Python's own types."""
    if row in encoded.errors:
        return encoded.errors[row]
    begin, end = encoded.offsets[row : row + 2].tolist()
    said: list[object] = [encoded.ids[begin:end].tolist()]
    if options.spans:
        said.append(None if encoded.spans is None else encoded.spans[begin:end].tolist())
    if encoded.num_tokens is not None and encoded.num_tokens[row] > end - begin:
        said.append(int(encoded.num_tokens[row]))
        said.append(None if encoded.kept is None else encoded.kept[row].tolist())
    return said


def _decode_difference(gpu: Gpu, cpu: Engine, vocabulary: Vocabulary, batch: Batch) -> str:
    """Whether ids of the batch, and some that are none, become the same bytes."""
    encoded = cpu.encode(vocabulary, batch)
    ids = np.concatenate([encoded.ids, np.array([0, -1, len(vocabulary), 0], np.int64)])
    last = int(encoded.offsets[-1])
    offsets = np.concatenate([encoded.offsets, np.array([last + 2, last + 3, last + 4])])
    for skip in (False, True):
        theirs = cpu.decode(vocabulary, ids, offsets, skip)
        try:
            data, places, errors = gpu.decode(vocabulary, ids, offsets, skip)
        except NotCovered:
            return ""
        equal = np.array_equal(data, theirs.data) and np.array_equal(places, theirs.offsets)
        if not equal or errors != theirs.errors:
            return f"decoded bytes differ (skip_special_tokens={skip})"
    return ""
