"""Encodes byte-level BPE of text in C++; another encoder encodes rows that C++ does not support.

These rows are not UTF-8, or contain special tokens whose match depends on more than their content
and the white space around them. Rows that NFC may change are first converted to NFC (`composer`),
and then encoded in C++.
"""

from __future__ import annotations

import logging
import threading
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.host.cores import limit_threads
from service.engines.base import Abandoned
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder, has_unknown
from service.engines.cpu.dna.encoder import NAME
from service.engines.encoder import EncodeRows, ReferenceEncoder, take_rows
from service.engines.selftest import compare, make_test_texts
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.post_processing import Content, join_rows
from vocabularies.model.tables import TokenTable
from vocabularies.model.vocabulary import Vocabulary

try:
    from service.engines.cpu.text import _text_bpe as native
except ImportError:
    native = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)
TASK_BYTES = 1 << 16
NO_ROWS = np.zeros(0, np.int64)
CONTINUATION_MASK = np.uint8(0xC0)
CONTINUATION = np.uint8(0x80)  # Of a byte that continues a character in UTF-8.
MAX_REFERENCE_BYTES = 32 * 1024  # Takes the reference about 80 ms.


class TextEncoder(TokenizersEncoder):
    """Encodes batches of byte-level BPE in C++; it is thread-safe.

    Attributes:
        other: tokenizers.
        encode_left: encodes long rows that the extension does not support, if tokenizers agrees
            with the reference.
        num_threads: the most threads that encode a batch.
        task_bytes: the bytes of rows, or of a part of a long row, that form one task of a thread.
        num_bytes: an estimate of the memory of the tables.

    Raises:
        NotCovered: the extension is not built, or does not support the vocabulary.
    """

    name = NAME

    def __init__(self, vocabulary: Vocabulary, table: TokenTable, num_threads: int = 0) -> None:
        if native is None:
            raise NotCovered("its C++ extension is not built")
        # Imported here: they bring the tables of the kernels, which only text needs.
        from service.engines.cpu.text import tables
        from service.engines.cpu.text.composer import Composer

        arguments = tables.native_arguments(vocabulary)
        super().__init__(vocabulary, table)
        self.native = native.make(*arguments)
        self.other = TokenizersEncoder(vocabulary, table)
        self.other.tokenizers = self.tokenizers
        self.encode_left: EncodeRows = self.other.encode
        self.composer = Composer(vocabulary)
        # A text in NFC is encoded as without the normalizer, so token lengths give its spans.
        self.spells_composed = self.composer.is_needed and not has_unknown(vocabulary)
        self.comparison_lock = threading.Lock()
        self.num_threads = limit_threads(num_threads)
        self.num_bytes = tables.table_bytes(arguments, self.num_threads)
        self.task_bytes = TASK_BYTES

    def content(self, batch: Batch, plain: bool) -> Content:
        """Encode rows without spans; `plain` leaves special tokens as text."""
        content, left = self._encode_most(batch, plain, is_composed=False)
        return self._add_left(content, left, batch, plain) if len(left) else content

    def encode_short(self, text: str | NDArray[np.uint8]) -> NDArray[np.int32] | None:
        """Return the ids of a short text with special tokens matched.

        Returns:
            None if the text is too long, or the extension does not support it.
        """
        ids = native.encode_short(self.native, text, False)
        return None if ids is None else np.frombuffer(ids, np.int32)

    def list_short(self, text: str) -> list[int] | None:
        """Encode a short text like `encode_short`; return the ids as a list."""
        ids: list[int] | None = native.encode_short(self.native, text, True)
        return ids

    def content_with_spans(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode rows with spans; the extension handles rows that their tokens spell.

        The reference encodes the few other rows. So most services never load the library, which
        holds Python's lock for most of a second while it reads a large vocabulary.
        """
        if self.spells_composed:
            plain = options.special == "plain"
            content, left = self._encode_most(batch, plain, is_composed=False)
            if np.diff(batch.offsets)[left].sum() <= MAX_REFERENCE_BYTES:
                content = self._add_spans(content, batch, options)  # The reference encodes `left`.
                _widen_spans(content, batch)
                return content
        return super().content_with_spans(batch, options)

    def _encode_most(
        self, batch: Batch, plain: bool, is_composed: bool
    ) -> tuple[Content, NDArray[np.int64]]:
        """Encode rows by the extension; also return the unsupported rows, which have no ids.

        Raises:
            Abandoned: no request waits for the batch any more.
        """
        offsets = np.empty(len(batch) + 1, np.int64)
        reasons = np.empty(len(batch), np.uint8)
        encoded = native.encode(
            self.native,
            batch.data,
            batch.offsets,
            batch.has_texts,
            is_composed,
            plain,
            self.num_threads,
            self.task_bytes,
            offsets,
            reasons,
            batch.should_continue,
        )
        if encoded is None:
            raise Abandoned
        ids, num_left = encoded
        left = np.flatnonzero(reasons) if num_left else NO_ROWS
        return Content(np.frombuffer(ids, np.int32), offsets), left

    def _add_left(
        self, content: Content, left: NDArray[np.int64], batch: Batch, plain: bool
    ) -> Content:
        """Add the ids of unsupported rows, most of which the extension can encode in NFC."""
        others = np.delete(np.arange(len(batch)), left)
        parts = [(others, take_rows(content, others))]
        options = EncodeOptions(False, "plain" if plain else "match")
        composed = self.composer.compose(batch.select(left.tolist(), options), plain)
        if composed:
            rows = left[[*composed]]
            composed_batch = Batch([*composed.values()])
            composed_batch.should_continue = batch.should_continue
            again, still_left = self._encode_most(composed_batch, plain, True)
            done = np.delete(np.arange(len(rows)), still_left)
            parts.append((rows[done], take_rows(again, done)))
            left = np.setdiff1d(left, rows[done])
        if len(left):
            part = batch.select(left.tolist(), options)
            parts.append((left, self._encode_by_another(part, options)))
        return join_rows(parts, len(batch))

    def _encode_by_another(self, part: Batch, options: EncodeOptions) -> Content:
        if len(part.data) <= MAX_REFERENCE_BYTES or not self._compare_library():
            return ReferenceEncoder(self.vocabulary).encode(part, options)
        return self.encode_left(part, options)

    def _compare_library(self) -> bool:
        """Return whether tokenizers agrees with the reference; the first call compares them.

        Most services never get a long text of this kind, and the library takes a second to load.
        """
        with self.comparison_lock:
            return self._library_agrees

    @cached_property
    def _library_agrees(self) -> bool:
        texts = make_test_texts(self.vocabulary)
        result = compare(self.other, ReferenceEncoder(self.vocabulary), texts)
        if result.num_different:
            logger.warning("Self-test of %s: %s", self.vocabulary.digest, result.first_difference)
        return not result.num_different


def _widen_spans(content: Content, batch: Batch) -> None:
    """Widen the spans of tokens that split a character to the whole character.

    A normalizer maps whole characters, so spans must not be smaller than a character.
    """
    spans = content.spans
    assert spans is not None
    is_first = np.append((batch.data & CONTINUATION_MASK) != CONTINUATION, True)
    is_first[batch.offsets] = True  # A row that is not UTF-8 may begin with any byte.
    if is_first.all():
        return
    places = np.arange(len(is_first))
    begins = np.maximum.accumulate(np.where(is_first, places, 0))
    ends = np.minimum.accumulate(np.where(is_first, places, len(places))[::-1])[::-1]
    row_begins = np.repeat(batch.offsets[:-1], np.diff(content.offsets))
    spans[:, 0] = begins[spans[:, 0] + row_begins] - row_begins
    spans[:, 1] = ends[spans[:, 1] + row_begins] - row_begins
