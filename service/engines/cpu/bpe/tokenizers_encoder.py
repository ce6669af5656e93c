"""Encodes BPE with Hugging Face's tokenizers; text/encoder.py extends it with a C++ extension.

The library reports neither the special token for which a row is refused, nor the spans of rows
whose tokens do not spell the row; the reference computes both.
"""

from __future__ import annotations

import threading
from importlib.metadata import version
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from service.engines.base import LibraryFailed
from service.engines.cpu.bpe.normalized_special_tokens import (
    choose_first,
    find_special_token,
    has_hidden_tokens,
)
from service.engines.encoder import ReferenceEncoder, refuse_rows, take_rows
from service.engines.fault_isolation import reraise_unless_failure
from vocabularies.batch.batch import Batch, EncodeOptions, RowError, RowRefused
from vocabularies.batch.post_processing import Content, join_rows
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.errors import VocabularyError
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.byte_alphabet import UTF8_BYTES
from vocabularies.model.tables import TokenTable
from vocabularies.model.types import Bpe, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import token_ids_of
from vocabularies.reference.special_tokens import split_special_tokens

Int64s = NDArray[np.int64]
# The library counts a byte without a token as long as the prefix or suffix inside of words.
NO_PLACES = RowError(
    "no_offsets", "the library tokenizers places ids behind the end of this text; it has ids alone"
)

NO_UNKNOWN = RowError(
    "no_unknown_token",
    "the vocabulary has no token for a character of the text, and no unknown token for it",
)
# What the library says of such a text, by the models Unigram, WordPiece and WordLevel, and BPE.
UNKNOWN_FAILURES = ("`unk_id` is missing", "Missing [UNK] token", "Unk token")


def is_unknown_failure(error: BaseException) -> bool:
    """Return whether the library failed because the vocabulary has no unknown token."""
    text = str(error)
    return isinstance(error, Exception) and any(words in text for words in UNKNOWN_FAILURES)


def is_byte_level(vocabulary: Vocabulary) -> bool:
    """Return whether the model is a BPE over bytes."""
    return isinstance(vocabulary.model, Bpe) and vocabulary.model.byte_level


class TokenizersEncoder:
    """Encodes batches with Hugging Face's tokenizers; it is thread-safe.

    Whether special tokens are matched is a setting of the library's Tokenizer, which must not
    change while several threads use it. So there are two Tokenizers that share one model; each is
    made when first needed.
    """

    name = f"tokenizers {version('tokenizers')}"

    def __init__(self, vocabulary: Vocabulary, table: TokenTable) -> None:
        self.vocabulary = vocabulary
        self.table = table
        self.lock = threading.Lock()
        self.tokenizers: dict[bool, Tokenizer] = {}
        self.reference = ReferenceEncoder(vocabulary)
        # Symbols are bytes and no normalizer changes the text: spans follow from token lengths.
        self.spells_text = is_byte_level(vocabulary) and not vocabulary.normalizers
        # The library's spans are wrong behind a dropped symbol, token lengths for unknown bytes.
        self.needs_reference_spans = _may_drop(vocabulary) or (
            self.spells_text and has_unknown(vocabulary)
        )
        self.refused_contents = _stripping_contents(vocabulary)
        self.has_hidden_tokens = has_hidden_tokens(vocabulary)
        special = vocabulary.special_tokens
        self.stripping_ids = [token.id for token in special if token.lstrip or token.rstrip]

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options.

        Raises:
            RuntimeError: the library panicked; the panic itself is not an Exception.
        """
        try:
            return self._encode(batch, options)
        except BaseException as error:
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                raise
            raise RuntimeError(f"{self.name} failed with a Rust panic: {error}") from error

    def _encode(self, batch: Batch, options: EncodeOptions) -> Content:
        plain = options.special == "plain"
        if options.spans and self.needs_reference_spans:
            return self.reference.encode(batch, options)
        if options.spans and not self.spells_text:
            content = self.content_with_spans(batch, options)
        else:
            content = self.content(batch, plain)
        if options.special == "refuse":
            content = self._refuse_special_tokens(content, batch)
        if options.spans and content.spans is None:
            content = self._add_spans(content, batch, options)
        return content

    def content(self, batch: Batch, plain: bool) -> Content:
        """Encode rows without spans; `plain` leaves special tokens as text."""
        return self.library_content(batch, plain, False)

    def content_with_spans(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode rows with spans, which do not always follow from the tokens."""
        return self.library_content(batch, options.special == "plain", True)

    def tokenizer(self, plain: bool) -> Tokenizer:
        """Return the tokenizer that leaves special tokens as text, or that matches them."""
        with self.lock:
            if plain not in self.tokenizers:
                other = self.tokenizers.get(not plain)
                tokenizer = None if other is None else share_model(other)
                if tokenizer is None:
                    tokenizer = read_tokenizer(tokenizer_json(self.vocabulary))
                tokenizer.encode_special_tokens = plain
                self.tokenizers[plain] = tokenizer
            return self.tokenizers[plain]

    def library_content(self, batch: Batch, plain: bool, with_spans: bool) -> Content:
        """Encode rows with the library tokenizers, optionally with spans in bytes.

        Raises:
            LibraryFailed: the library panics on a text, or fails on a text whose ids only the
                library defines.
        """
        texts, errors = batch.texts()
        try:
            encodings = self._encodings(list(texts), plain, with_spans)
        except LibraryFailed as failure:
            if failure.__cause__ is None or not is_unknown_failure(failure.__cause__):
                raise
            encodings, unknown = self._encode_known(list(texts), plain, with_spans)
            errors = unknown | errors
        rows = [encoding.ids for encoding in encodings]
        offsets = offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1]))
        if not with_spans:
            return Content(ids, offsets, None, errors)
        parts = [np.zeros((0, 2), np.int64)]
        outside: dict[int, RowError] = {}
        for row, (text, encoding) in enumerate(zip(texts, encodings, strict=True)):
            in_characters = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            if (in_characters > len(text)).any():
                outside[row] = NO_PLACES
            parts.append(_to_bytes(text, np.minimum(in_characters, len(text))))
        content = Content(ids, offsets, np.concatenate(parts), errors)
        return refuse_rows(content, outside) if outside else content

    def _encodings(self, texts: list[str], plain: bool, with_spans: bool) -> list[Encoding]:
        tokenizer = self.tokenizer(plain)
        run = tokenizer.encode_batch if with_spans else tokenizer.encode_batch_fast
        try:
            return run(texts, add_special_tokens=False)
        except BaseException as error:
            reraise_unless_failure(error)
            is_panic = not isinstance(error, Exception)
            if is_panic or isinstance(self.vocabulary.model, Upstream):
                message = f"{self.name}, which computes this vocabulary, fails on this text"
                raise LibraryFailed(message) from error
            raise

    def _encode_known(
        self, texts: list[str], plain: bool, with_spans: bool
    ) -> tuple[list[Encoding], dict[int, RowError]]:
        """Encode texts one by one; refuse those that need an unknown token, with the ids of ""."""
        (nothing,) = self._encodings([""], plain, with_spans)
        encodings: list[Encoding] = []
        errors: dict[int, RowError] = {}
        for row, text in enumerate(texts):
            try:
                encodings += self._encodings([text], plain, with_spans)
            except LibraryFailed as failure:
                if failure.__cause__ is None or not is_unknown_failure(failure.__cause__):
                    raise
                encodings.append(nothing)
                errors[row] = NO_UNKNOWN
        return encodings, errors

    def _refuse_special_tokens(self, content: Content, batch: Batch) -> Content:
        """Refuse rows that contain a special token; each error has its position in bytes."""
        found = np.flatnonzero(self.table.is_special[content.ids])
        rows = {int(row) - 1 for row in np.searchsorted(content.offsets, found, side="right")}
        texts, _ = batch.texts()
        contents = self.refused_contents
        if contents:
            rows |= {r for r, text in enumerate(texts) if any(c in text for c in contents)}
        checked = sorted(rows - content.errors.keys())
        hidden = self._find_hidden([texts[row] for row in checked])
        errors: dict[int, RowError] = {}
        for row, error in zip(checked, hidden, strict=True):
            try:
                for _ in split_special_tokens(self.vocabulary, texts[row], "refuse"):
                    pass
            except RowRefused as refused:
                error = choose_first(refused.error, error)
            if error is not None:
                errors[row] = error
        return refuse_rows(content, errors) if errors else content

    def _find_hidden(self, texts: list[str]) -> list[RowError | None]:
        """Make the refusals of texts for special tokens that exist only after normalization."""
        if not (texts and self.has_hidden_tokens):
            return [None] * len(texts)
        all_matched = self._encodings(texts, False, True)
        all_plain = self._encodings(texts, True, True)
        special = {token.id: token for token in self.vocabulary.special_tokens if token.special}
        return [
            find_special_token(text, matched, plain, special)
            for text, matched, plain in zip(texts, all_matched, all_plain, strict=True)
        ]

    def _add_spans(self, content: Content, batch: Batch, options: EncodeOptions) -> Content:
        """Add spans by the lengths of tokens, if the tokens of a row spell it.

        The reference encodes all other rows, and rows with a token that strips white space in which
        the next token may begin.
        """
        sizes = self.table.lengths[content.ids]
        ends = np.cumsum(sizes, dtype=np.int64)
        borders = np.append(0, ends)[content.offsets]
        spans = np.stack([ends - sizes, ends], axis=1)
        spans -= np.repeat(borders[:-1], np.diff(content.offsets))[:, None]
        content.spans = spans
        wrong = np.diff(borders) != np.diff(batch.offsets)
        if self.stripping_ids:
            found = np.flatnonzero(np.isin(content.ids, self.stripping_ids))
            wrong[np.searchsorted(content.offsets, found, side="right") - 1] = True
        wrong[list(content.errors)] = False
        if not wrong.any():
            return content
        rows, others = np.flatnonzero(wrong), np.flatnonzero(~wrong)
        replaced = self.reference.encode(batch.select(rows.tolist(), options), options)
        return join_rows([(others, take_rows(content, others)), (rows, replaced)], len(batch))


def read_tokenizer(document: str) -> Tokenizer:
    """Make the library's tokenizer from a tokenizer.json, without its cache, which is never freed.

    Raises:
        VocabularyError: the library cannot read the tokenizer.json.
    """
    try:
        tokenizer = Tokenizer.from_str(document)
    except BaseException as error:  # It raises nothing narrower, and panics on some documents.
        reraise_unless_failure(error)
        message = f"the library tokenizers cannot load it: {error}"
        raise VocabularyError.at("tokenizer.json", message) from error
    # The library never frees its cache of at most 10,000 words: 55 kB for the smallest vocabulary.
    # English is encoded at 3.0 MB/s with it, and at 2.9 without.
    if hasattr(tokenizer.model, "_resize_cache"):
        tokenizer.model._resize_cache(0)
    return tokenizer


def share_model(tokenizer: Tokenizer) -> Tokenizer | None:
    """Make another tokenizer with the same model and steps; None if added tokens get other ids.

    This takes a fraction of the time and memory of reading the tokenizer.json again.
    """
    other = Tokenizer(tokenizer.model)
    other.normalizer = tokenizer.normalizer
    other.pre_tokenizer = tokenizer.pre_tokenizer
    other.post_processor = tokenizer.post_processor
    other.decoder = tokenizer.decoder
    added = tokenizer.get_added_tokens_decoder()
    other.add_tokens([added[token_id] for token_id in sorted(added)])
    return other if other.get_added_tokens_decoder() == added else None


def _may_drop(vocabulary: Vocabulary) -> bool:
    """Return whether symbols may be dropped, after which the library's offsets are wrong."""
    model = vocabulary.model
    if not isinstance(model, Bpe) or model.unknown_id is not None:
        return False
    known = token_ids_of(vocabulary)
    return not (model.byte_level and all(bytes([byte]) in known for byte in UTF8_BYTES))


def has_unknown(vocabulary: Vocabulary) -> bool:
    """Return whether the model is a BPE with an unknown token."""
    return isinstance(vocabulary.model, Bpe) and vocabulary.model.unknown_id is not None


def _stripping_contents(vocabulary: Vocabulary) -> list[str]:
    """List special tokens that may have no id, because another one may strip their text."""
    if not any(token.lstrip or token.rstrip for token in vocabulary.special_tokens):
        return []
    return [t.content for t in vocabulary.special_tokens if t.matched and t.special]


def _to_bytes(text: str, in_characters: Int64s) -> Int64s:
    """Convert spans int64[T, 2] from characters to bytes."""
    if text.isascii():
        return in_characters
    characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (characters > 0x7F).astype(np.int64) + (characters > 0x7FF) + (characters > 0xFFFF)
    return offsets_from_lengths(sizes)[in_characters]
