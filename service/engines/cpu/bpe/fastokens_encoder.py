"""Encodes byte-level BPE by fastokens, with pretokenizers spelled as it computes them fastest.

fastokens recognizes published patterns, and runs any other spelling of them through a regex engine
(2026-11, MB/s of one core, War and Peace for the first time and again: cl100k 85 and 550 instead of
40 and 165, DeepSeek 80 and 400 instead of 27 and 43).
Knows the rows on which fastokens differs from the reference, and gives no spans.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib.metadata import version

import fastokens
import numpy as np

from service.engines.cpu.bpe.fastokens_quirks.ambiguous_special_tokens import find_ambiguous
from service.engines.cpu.bpe.fastokens_quirks.cl100k_trailing_whitespace import Cl100kTails
from service.engines.cpu.bpe.fastokens_quirks.odd_characters import has_odd_characters
from service.engines.cpu.bpe.fastokens_quirks.spelling import make_readable, respell
from service.engines.cpu.bpe.joined_short_texts import ShortTexts
from service.engines.cpu.bpe.library_threads import has_library_threads
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.encoder import ReferenceEncoder, take_rows
from service.engines.selftest import compare, make_test_texts
from vocabularies.batch.batch import Batch, EncodeOptions, wide_rows
from vocabularies.batch.post_processing import Content, join_rows
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.tables import TokenTable
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import make_bpe_rules

logger = logging.getLogger(__name__)
# Takes the reference about 80 ms. Batches on the event loop are smaller by default, so that the
# library is never loaded there.
MAX_REFERENCE_BYTES = 32 * 1024
# Larger batches are computed by the library's threads; each row counts as ROW_CHARACTERS more.
# Smaller ones mostly run on the event loop. They are encoded text by text, each time releasing
# Python's lock, for which a thread beside a busy event loop would have to wait each time.
MIN_THREADED_CHARACTERS = 32 * 1024
ROW_CHARACTERS = 16


class FastokensEncoder(TokenizersEncoder):
    """Encodes batches with fastokens; spans of normalized texts come from tokenizers.

    Raises:
        ValueError: fastokens cannot read this vocabulary.
    """

    name = f"fastokens {version('fastokens')}"

    def __init__(self, vocabulary: Vocabulary, table: TokenTable) -> None:
        super().__init__(vocabulary, table)
        self.tails: Cl100kTails | None = None
        spelling = vocabulary.pretokenizer
        if spelling == "cl100k" and not vocabulary.normalizers:
            self.tails = Cl100kTails.of(vocabulary)
            spelling = "cl100k" if self.tails is None else "llama3"
        document = tokenizer_json(make_readable(vocabulary))
        document = respell(document, vocabulary.pretokenizer, spelling)
        with ThreadPoolExecutor(1) as pool:  # The library lets other threads run meanwhile.
            building = pool.submit(fastokens.Tokenizer.from_json_str, document)
            self._prepare_comparison()
            self.fast = building.result()
        self.short_texts = ShortTexts.of(vocabulary, spelling)
        self.ambiguous = find_ambiguous(vocabulary.special_tokens)
        self.comparison_lock = threading.Lock()
        self.has_threads = has_library_threads()

    def _prepare_comparison(self) -> None:
        """Make what the self-test of this encoder needs beside it."""
        make_bpe_rules(self.vocabulary)
        for plain in () if self.spells_text else (False, True):
            self.tokenizer(plain)

    def content(self, batch: Batch, plain: bool) -> Content:
        """Encode rows without spans; `plain` leaves special tokens as text."""
        texts, errors = batch.texts()
        doubtful = {row for row in wide_rows(texts) if has_odd_characters(texts[row])}
        for row, text in enumerate(texts) if self.ambiguous else ():
            if any(content in text for content in self.ambiguous):
                doubtful.add(row)
        if self.tails is None:
            content = self._encode_fast(texts, plain)
        else:
            begins, uncertain = self.tails.find(texts)
            heads = list(texts)
            for row, begin in begins.items():
                heads[row] = texts[row][:begin]
            content = self._encode_fast(heads, plain)
            doubtful |= uncertain | self.tails.find_before_specials(texts, content)
            if begins:
                tails = {row: texts[row][begin:] for row, begin in begins.items()}
                content = self.tails.append(content, tails)
        if doubtful:
            content = self._replace(content, sorted(doubtful), batch, plain)
        content.errors = errors
        return content

    def _encode_fast(self, texts: Sequence[str], plain: bool) -> Content:
        if self.short_texts is None or len(texts) < 2:
            return self._encode_flat(texts, plain)
        joined, groups = self.short_texts.join(texts)
        content = self._encode_flat(joined, plain)
        if len(joined) == len(texts):
            return content
        return self.short_texts.split(content, groups)

    def _encode_flat(self, texts: Sequence[str], plain: bool) -> Content:
        """Encode texts: a small batch one by one in this thread, others by the library's threads.

        For two texts or more, the library wakes a thread on each core and waits for all of them.
        """
        if self.has_threads and len(texts) > 1 and _weight(texts) <= MIN_THREADED_CHARACTERS:
            return _encode_one_by_one(self.fast, texts, plain)
        ids, offsets = self.fast.encode_batch_flat(texts, False, plain)
        # Copied: the library's buffers are read-only, and the arrays belong to the caller.
        return Content(np.frombuffer(ids, np.int32).copy(), np.frombuffer(offsets, np.int64).copy())

    def _replace(self, content: Content, rows: list[int], batch: Batch, plain: bool) -> Content:
        """Replace the ids of some rows by those of the reference, or of tokenizers if it agrees."""
        options = EncodeOptions(False, "plain" if plain else "match")
        part = batch.select(rows, options)
        others = np.setdiff1d(np.arange(len(batch)), rows)
        if len(part.data) <= MAX_REFERENCE_BYTES or not self._compare_library():
            replaced = self.reference.encode(part, options)
        else:
            replaced = self.library_content(part, plain, False)
        return join_rows(
            [(others, take_rows(content, others)), (np.array(rows), replaced)], len(batch)
        )

    def _compare_library(self) -> bool:
        """Compare tokenizers with the reference, once; return whether they agree.

        Most services never get a long text of this kind, and the library takes a second to load.
        """
        with self.comparison_lock:
            return self._library_agrees

    @cached_property
    def _library_agrees(self) -> bool:
        library = TokenizersEncoder(self.vocabulary, self.table)
        library.tokenizers = self.tokenizers
        result = compare(
            library, ReferenceEncoder(self.vocabulary), make_test_texts(self.vocabulary)
        )
        if result.num_different:
            logger.warning("Self-test of %s: %s", self.vocabulary.digest, result.first_difference)
        return not result.num_different


def _weight(texts: Sequence[str]) -> int:
    return sum(map(len, texts)) + ROW_CHARACTERS * len(texts)


def _encode_one_by_one(
    tokenizer: fastokens.Tokenizer, texts: Sequence[str], plain: bool
) -> Content:
    encode = tokenizer.encode_batch_flat
    parts = [encode([text], False, plain)[0] for text in texts]
    ids = np.frombuffer(bytearray().join(parts), np.int32)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return Content(ids, offsets_from_lengths(sizes // ids.itemsize))
