"""Byte-level BPE by fastokens, in the spelling of each rule that it computes without a regex.

fastokens knows published patterns by heart; the same rule in other words runs through a regex
engine (2026-11, MB/s of one core, War and Peace for the first time and again: cl100k 85 and 550
instead of 40 and 165, DeepSeek 80 and 400 instead of 27 and 43).
Knows which rows fastokens computes otherwise than the reference, and nothing of spans.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version

import fastokens
import numpy as np

from service.engines.cpu.bpe.fastokens_quirks.ambiguous_special_tokens import find_ambiguous
from service.engines.cpu.bpe.fastokens_quirks.cl100k_trailing_whitespace import Cl100kTails
from service.engines.cpu.bpe.fastokens_quirks.odd_characters import has_odd_characters
from service.engines.cpu.bpe.fastokens_quirks.spelling import make_readable, respell
from service.engines.cpu.bpe.joined_short_texts import ShortTexts
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.encoder import ReferenceEncoder, take_rows
from service.engines.selftest import compare, make_test_texts
from vocabularies.batch.batch import Batch, EncodeOptions, wide_rows
from vocabularies.batch.post_processing import Content, join_rows
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.tables import TokenTable
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
# About 80 ms of the reference. Batches on the event loop are smaller than that by default, so that
# the library is never loaded there.
MAX_REFERENCE_BYTES = 32 * 1024
# Larger batches are shared by the library's threads; a row weighs ROW_CHARACTERS beside its text.
# By default the event loop runs those up to here. One after the other, texts let go of Python's
# lock each time, and another thread than a busy loop's would wait for it as often.
SHARED_CHARACTERS = 32 * 1024
ROW_CHARACTERS = 16
HAS_THREADS = len(os.sched_getaffinity(0)) > 1  # The library's, too, look once.


class FastokensEncoder(TokenizersEncoder):
    """Encodes batches with fastokens; spans of rewritten texts come from tokenizers.

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
        self.fast = fastokens.Tokenizer.from_json_str(document)
        self.short_texts = ShortTexts.of(vocabulary, spelling)
        self.ambiguous = find_ambiguous(vocabulary.special_tokens)
        self.rare_lock = threading.Lock()

    def content(self, batch: Batch, plain: bool) -> Content:
        """The ids alone; `plain` leaves special tokens as text."""
        texts, errors = batch.texts()
        rare = {row for row in wide_rows(texts) if has_odd_characters(texts[row])}
        if self.ambiguous:
            rare |= {r for r, text in enumerate(texts) if any(c in text for c in self.ambiguous)}
        if self.tails is None:
            content = self._fast_content(texts, plain)
        else:
            begins, unsure = self.tails.find(texts)
            heads = list(texts)
            for row, begin in begins.items():
                heads[row] = texts[row][:begin]
            content = self._fast_content(heads, plain)
            rare |= unsure | self.tails.before_specials(texts, content)
            if begins:
                tails = {row: texts[row][begin:] for row, begin in begins.items()}
                content = self.tails.append(content, tails)
        if rare:
            content = self._replace(content, sorted(rare), batch, plain)
        content.errors = errors
        return content

    def _fast_content(self, texts: Sequence[str], plain: bool) -> Content:
        if self.short_texts is None or len(texts) < 2:
            return _flat(self.fast, texts, plain)
        joined, groups = self.short_texts.join(texts)
        content = _flat(self.fast, joined, plain)
        if len(joined) == len(texts):
            return content
        return self.short_texts.split(content, groups)

    def _replace(self, content: Content, rows: list[int], batch: Batch, plain: bool) -> Content:
        """The content with the ids of some rows computed anew."""
        options = EncodeOptions(False, "plain" if plain else "match")
        part, others = batch.select(rows, options), np.setdiff1d(np.arange(len(batch)), rows)
        if len(part.data) <= MAX_REFERENCE_BYTES or not self.library_agrees:
            right = self.reference.encode(part, options)
        else:
            right = self.library_content(part, plain, False)
        return join_rows(
            [(others, take_rows(content, others)), (np.array(rows), right)], len(batch)
        )

    @property
    def library_agrees(self) -> bool:
        """Whether tokenizers gives the reference's ids; compared when first asked for.

        Most services never meet a long text of this kind, and the library takes a second to load.
        """
        with self.rare_lock:
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


def _flat(tokenizer: fastokens.Tokenizer, texts: Sequence[str], plain: bool) -> Content:
    """The ids of the texts; of few characters one after the other, in this thread alone.

    For two texts or more the library wakes a thread on each core and waits for all that came.
    """
    if HAS_THREADS and len(texts) > 1 and _weight(texts) <= SHARED_CHARACTERS:
        return _one_by_one(tokenizer, texts, plain)
    ids, offsets = tokenizer.encode_batch_flat(texts, False, plain)
    # Copied: the library's buffers are read-only, and the arrays belong to the caller.
    return Content(np.frombuffer(ids, np.int32).copy(), np.frombuffer(offsets, np.int64).copy())


def _weight(texts: Sequence[str]) -> int:
    return sum(map(len, texts)) + ROW_CHARACTERS * len(texts)


def _one_by_one(tokenizer: fastokens.Tokenizer, texts: Sequence[str], plain: bool) -> Content:
    encode = tokenizer.encode_batch_flat
    parts = [encode([text], False, plain)[0] for text in texts]
    ids = np.frombuffer(bytearray().join(parts), np.int32)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return Content(ids, offsets_from_lengths(sizes // ids.itemsize))
