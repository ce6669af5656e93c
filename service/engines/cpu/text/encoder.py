"""Encodes byte-level BPE of text in C++; another encoder takes the rows that the extension leaves.

These are rows that are not UTF-8, that NFC may change, or that have special tokens whose match
depends on more than their content and the white space around them.
"""

from __future__ import annotations

import logging
import threading
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.host.cores import limit_threads
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
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
MAX_REFERENCE_BYTES = 32 * 1024  # Takes the reference about 80 ms.


class TextEncoder(TokenizersEncoder):
    """Encodes batches of byte-level BPE in C++; several threads may call it at once.

    Attributes:
        other: tokenizers.
        encode_left: encodes long rows that the extension leaves, where tokenizers agrees with the
            reference.
        num_threads: the most threads that encode a batch.
        task_bytes: the bytes of rows, or of a part of a long row, that a thread encodes at once.
        num_bytes: an estimate of the memory of its tables.

    Raises:
        NotCovered: the extension is not built, or does not support the vocabulary.
    """

    name = NAME

    def __init__(self, vocabulary: Vocabulary, table: TokenTable, num_threads: int = 0) -> None:
        if native is None:
            raise NotCovered("its C++ extension is not built")
        # Imported here: it brings the tables of the kernels, which only text needs.
        from service.engines.cpu.text import tables

        arguments = tables.native_arguments(vocabulary)
        super().__init__(vocabulary, table)
        self.native = native.make(*arguments)
        self.other = TokenizersEncoder(vocabulary, table)
        self.other.tokenizers = self.tokenizers
        self.encode_left: EncodeRows = self.other.encode
        self.comparison_lock = threading.Lock()
        self.num_threads = limit_threads(num_threads)
        self.num_bytes = tables.table_bytes(arguments, self.num_threads)
        self.task_bytes = TASK_BYTES

    def content(self, batch: Batch, plain: bool) -> Content:
        """Encode rows without spans; `plain` leaves special tokens as text."""
        offsets = np.empty(len(batch) + 1, np.int64)
        reasons = np.empty(len(batch), np.uint8)
        ids, num_left = native.encode(
            self.native,
            batch.data,
            batch.offsets,
            batch.has_texts,
            plain,
            self.num_threads,
            self.task_bytes,
            offsets,
            reasons,
        )
        content = Content(np.frombuffer(ids, np.int32), offsets)
        return self._replace_left(content, reasons, batch, plain) if num_left else content

    def _replace_left(
        self, content: Content, reasons: NDArray[np.uint8], batch: Batch, plain: bool
    ) -> Content:
        """Add the ids of the rows that the extension left."""
        options = EncodeOptions(False, "plain" if plain else "match")
        rows, others = np.flatnonzero(reasons), np.flatnonzero(reasons == 0)
        part = batch.select(rows.tolist(), options)
        if len(part.data) <= MAX_REFERENCE_BYTES or not self._compare_library():
            replaced = ReferenceEncoder(self.vocabulary).encode(part, options)
        else:
            replaced = self.encode_left(part, options)
        return join_rows([(others, take_rows(content, others)), (rows, replaced)], len(batch))

    def _compare_library(self) -> bool:
        """Compare tokenizers with the reference, once; return whether they agree.

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
