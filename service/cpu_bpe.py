"""BPE by the libraries: fastokens for byte-level vocabularies, tokenizers for all others.

Knows the reference only for what the libraries cannot tell: which special token a row is refused
for, and the spans of rows whose tokens do not spell the row.
"""

from __future__ import annotations

import threading
from importlib.metadata import version
from itertools import chain

import fastokens
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from service.encoders import Encoder, ReferenceEncoder, encode_parts, refuse_rows
from vocabularies.batch import Batch, EncodeOptions, RowError, RowRefused
from vocabularies.formats import tokenizer_json
from vocabularies.framing import Content, offsets_of
from vocabularies.reference_stretches import cut_text
from vocabularies.tables import TokenTable
from vocabularies.vocabulary import Bpe, Vocabulary

__all__ = ["FastokensEncoder", "TokenizersEncoder", "is_byte_level"]

Int64s = NDArray[np.int64]


def is_byte_level(vocabulary: Vocabulary) -> bool:
    """Whether the model is a BPE over bytes."""
    return isinstance(vocabulary.model, Bpe) and vocabulary.model.byte_level


class FastokensEncoder:
    """Encodes batches with fastokens; safe for several threads.

    Raises:
        ValueError: fastokens cannot read this vocabulary.
    """

    name = f"fastokens {version('fastokens')}"

    def __init__(self, vocabulary: Vocabulary, table: TokenTable) -> None:
        self.tokenizer = fastokens.Tokenizer.from_json_str(tokenizer_json(vocabulary))
        self.refusals = _Refusals(vocabulary, table)
        self.spans = _Spans(vocabulary, table)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options."""
        if options.spans and not self.spans.cumulative:
            return self.spans.by_library(batch, options)
        texts, errors = batch.texts()
        ids, offsets = self.tokenizer.encode_batch_flat(texts, False, options.special == "plain")
        content = Content(
            np.frombuffer(ids, np.int32).copy(), np.frombuffer(offsets, np.int64).copy(), None, errors
        )
        return _finish(content, batch, options, self.refusals, self.spans)


class TokenizersEncoder:
    """Encodes batches with Hugging Face's tokenizers; safe for several threads."""

    name = f"tokenizers {version('tokenizers')}"

    def __init__(self, vocabulary: Vocabulary, table: TokenTable) -> None:
        self.library = _Library(vocabulary)
        self.refusals = _Refusals(vocabulary, table)
        self.spans = _Spans(vocabulary, table, self.library)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options."""
        with_spans = options.spans and not self.spans.cumulative
        content = self.library.encode(batch, options.special == "plain", with_spans)
        return _finish(content, batch, options, self.refusals, self.spans)


def _finish(
    content: Content, batch: Batch, options: EncodeOptions, refusals: _Refusals, spans: _Spans
) -> Content:
    if options.special == "refuse":
        content = refusals.refuse(content, batch)
    if options.spans and content.spans is None:
        content = spans.add(content, batch, options)
    return content


class _Library:
    """Two tokenizers of one vocabulary: whether special tokens are looked for is a setting.

    The setting belongs to the object, so one that several threads use cannot be switched.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.json = tokenizer_json(vocabulary)
        self.tokenizers: dict[bool, Tokenizer] = {}
        self.lock = threading.Lock()

    def tokenizer(self, plain: bool) -> Tokenizer:
        """The one that leaves special tokens as text, or the one that finds them."""
        found = self.tokenizers.get(plain)
        if found is None:
            with self.lock:
                if plain not in self.tokenizers:
                    found = Tokenizer.from_str(self.json)
                    found.no_truncation()
                    found.no_padding()
                    found.encode_special_tokens = plain
                    self.tokenizers[plain] = found
                found = self.tokenizers[plain]
        return found

    def encode(self, batch: Batch, plain: bool, with_spans: bool) -> Content:
        """The rows' ids, with spans in bytes where they are asked for."""
        texts, errors = batch.texts()
        tokenizer = self.tokenizer(plain)
        run = tokenizer.encode_batch if with_spans else tokenizer.encode_batch_fast
        encodings = run(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        offsets = offsets_of(np.fromiter(map(len, rows), np.int64, len(rows)))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1]))
        spans = None
        if with_spans:
            parts = [
                _in_bytes(text, encoding.offsets)
                for text, encoding in zip(texts, encodings, strict=True)
            ]
            spans = np.concatenate([np.zeros((0, 2), np.int64), *parts])
        return Content(ids, offsets, spans, errors)


def _in_bytes(text: str, spans: list[tuple[int, int]]) -> Int64s:
    """int64[T, 2] bytes from characters."""
    in_characters = np.array(spans, np.int64).reshape(-1, 2)
    if text.isascii():
        return in_characters
    characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (characters > 0x7F).astype(np.int64) + (characters > 0x7FF) + (characters > 0xFFFF)
    return offsets_of(sizes)[in_characters]


class _Refusals:
    """Finds the rows that hold a special token although the caller refuses them."""

    def __init__(self, vocabulary: Vocabulary, table: TokenTable) -> None:
        self.vocabulary, self.table = vocabulary, table
        # A token that lstrip or rstrip left nothing of has no id, yet its text was there.
        tokens = [token for token in vocabulary.special_tokens if token.matched and token.special]
        stripping = any(token.lstrip or token.rstrip for token in vocabulary.special_tokens)
        self.contents = [token.content for token in tokens] if stripping else []

    def refuse(self, content: Content, batch: Batch) -> Content:
        """The content without the rows that hold one; each names the token and its byte."""
        found = np.flatnonzero(self.table.is_special[content.ids])
        rows = set(np.searchsorted(content.offsets, found, side="right").tolist())
        rows = {row - 1 for row in rows}
        texts, _ = batch.texts()
        if self.contents:
            rows |= {r for r, text in enumerate(texts) if any(c in text for c in self.contents)}
        errors: dict[int, RowError] = {}
        for row in sorted(rows - content.errors.keys()):
            try:
                for _ in cut_text(self.vocabulary, texts[row], "refuse"):
                    pass
            except RowRefused as refused:
                errors[row] = refused.error
        return refuse_rows(content, errors) if errors else content


class _Spans:
    """Which bytes of a row each id stands for.

    Attributes:
        cumulative: symbols are bytes and nothing rewrites the text, so that each token covers as
            many bytes as it spells; else only the library knows.
    """

    def __init__(
        self, vocabulary: Vocabulary, table: TokenTable, library: _Library | None = None
    ) -> None:
        self.vocabulary, self.table, self.library = vocabulary, table, library
        self.cumulative = is_byte_level(vocabulary) and not vocabulary.normalizers
        self.lock = threading.Lock()
        self.encoder: Encoder | None = None

    def by_library(self, batch: Batch, options: EncodeOptions) -> Content:
        """Ids and spans from `tokenizers`, which is made when it is first needed."""
        with self.lock:
            if self.encoder is None:
                self.encoder = TokenizersEncoder(self.vocabulary, self.table)
        return self.encoder.encode(batch, options)

    def add(self, content: Content, batch: Batch, options: EncodeOptions) -> Content:
        """Spans from the tokens' lengths; rows that these do not spell go to the reference."""
        ends = np.cumsum(self.table.lengths[content.ids], dtype=np.int64)
        begins = ends - self.table.lengths[content.ids]
        borders = np.append(0, ends)[content.offsets]
        spans = np.stack([begins, ends], axis=1)
        spans -= np.repeat(borders[:-1], np.diff(content.offsets))[:, None]
        content.spans = spans
        wrong = np.diff(borders) != np.diff(batch.offsets)
        wrong[list(content.errors)] = False
        if not wrong.any():
            return content
        reference = ReferenceEncoder(self.vocabulary)

        def others(batch: Batch, options: EncodeOptions) -> Content:
            return refuse_rows(content, {}) if not wrong.any() else _rows_of(content, ~wrong)

        return encode_parts(
            batch, options, [(np.flatnonzero(wrong), reference.encode)], others
        )


def _rows_of(content: Content, chosen: NDArray[np.bool_]) -> Content:
    """Some rows of a content, bool[B], as one of their own."""
    sizes = np.diff(content.offsets)
    kept = np.repeat(chosen, sizes)
    numbers = np.cumsum(chosen) - 1
    errors = {int(numbers[row]): e for row, e in content.errors.items() if chosen[row]}
    spans = None if content.spans is None else content.spans[kept]
    return Content(content.ids[kept], offsets_of(sizes[chosen]), spans, errors)
