"""BPE by Hugging Face's tokenizers; what fastokens computes faster is `fastokens_encoder`.

Knows the reference only for what the libraries cannot tell: which special token a row is refused
for, and the spans of rows whose tokens do not spell the row.
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
    earlier,
    found_behind_normalizers,
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
from vocabularies.reference.special_tokens import split_special_tokens

Int64s = NDArray[np.int64]
# Of bytes without a token, each is as long as the prefix or suffix inside of words says.
NO_PLACES = RowError(
    "no_offsets", "the library tokenizers places ids behind the end of this text; it has ids alone"
)


def is_byte_level(vocabulary: Vocabulary) -> bool:
    """Whether the model is a BPE over bytes."""
    return isinstance(vocabulary.model, Bpe) and vocabulary.model.byte_level


class TokenizersEncoder:
    """Encodes batches with Hugging Face's tokenizers; safe for several threads.

    Whether special tokens are looked for is a setting of a Tokenizer, so that one which several
    threads use cannot be switched: there are two, each made when it is first needed.
    """

    name = f"tokenizers {version('tokenizers')}"

    def __init__(self, vocabulary: Vocabulary, table: TokenTable) -> None:
        self.vocabulary, self.table = vocabulary, table
        self.lock = threading.Lock()
        self.tokenizers: dict[bool, Tokenizer] = {}
        self.reference = ReferenceEncoder(vocabulary)
        # Symbols are bytes and nothing rewrites the text: a token covers what it spells.
        self.spelled = is_byte_level(vocabulary) and not vocabulary.normalizers
        # The library's spans are wrong behind a dropped symbol; lengths are, for an unknown byte.
        self.by_reference = _may_drop(vocabulary) or (self.spelled and _has_unknown(vocabulary))
        self.refused_contents = _stripping_contents(vocabulary)
        self.has_hidden_tokens = has_hidden_tokens(vocabulary)
        special = vocabulary.special_tokens
        self.stripping_ids = [token.id for token in special if token.lstrip or token.rstrip]

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options.

        Raises:
            RuntimeError: the library panicked, which is no Exception of Python's.
        """
        try:
            return self._encode(batch, options)
        except BaseException as error:
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                raise
            raise RuntimeError(f"{self.name} panicked: {error}") from error

    def _encode(self, batch: Batch, options: EncodeOptions) -> Content:
        plain = options.special == "plain"
        if options.spans and self.by_reference:
            return self.reference.encode(batch, options)
        if options.spans and not self.spelled:
            content = self.library_content(batch, plain, True)
        else:
            content = self.content(batch, plain)
        if options.special == "refuse":
            content = self._refuse(content, batch)
        if options.spans and content.spans is None:
            content = self._add_spans(content, batch, options)
        return content

    def content(self, batch: Batch, plain: bool) -> Content:
        """The ids alone; `plain` leaves special tokens as text."""
        return self.library_content(batch, plain, False)

    def tokenizer(self, plain: bool) -> Tokenizer:
        """The library's object that leaves special tokens as text, or the one that finds them."""
        with self.lock:
            if plain not in self.tokenizers:
                made = read_tokenizer(tokenizer_json(self.vocabulary))
                made.encode_special_tokens = plain
                self.tokenizers[plain] = made
            return self.tokenizers[plain]

    def library_content(self, batch: Batch, plain: bool, with_spans: bool) -> Content:
        """Ids of `tokenizers`, with spans in bytes where they are asked for.

        Raises:
            LibraryFailed: it panics on a text, or fails on one that only it computes.
        """
        texts, errors = batch.texts()
        encodings = self._encodings(list(texts), plain, with_spans)
        rows = [encoding.ids for encoding in encodings]
        offsets = offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1]))
        if not with_spans:
            return Content(ids, offsets, None, errors)
        places = [np.array(encoding.offsets, np.int64).reshape(-1, 2) for encoding in encodings]
        pairs = list(zip(texts, places, strict=True))
        parts = [_in_bytes(text, np.minimum(place, len(text))) for text, place in pairs]
        spans = np.concatenate([np.zeros((0, 2), np.int64), *parts])
        content = Content(ids, offsets, spans, errors)
        outside = [row for row, (text, place) in enumerate(pairs) if (place > len(text)).any()]
        return refuse_rows(content, dict.fromkeys(outside, NO_PLACES)) if outside else content

    def _encodings(self, texts: list[str], plain: bool, with_spans: bool) -> list[Encoding]:
        tokenizer = self.tokenizer(plain)
        run = tokenizer.encode_batch if with_spans else tokenizer.encode_batch_fast
        try:
            return run(texts, add_special_tokens=False)
        except BaseException as error:
            reraise_unless_failure(error)
            is_panic = not isinstance(error, Exception)
            if is_panic or isinstance(self.vocabulary.model, Upstream):
                message = f"{self.name}, the reference here, fails on this text"
                raise LibraryFailed(message) from error
            raise

    def _refuse(self, content: Content, batch: Batch) -> Content:
        """The content without the rows that hold a special token; each error names its byte."""
        found = np.flatnonzero(self.table.is_special[content.ids])
        rows = {int(row) - 1 for row in np.searchsorted(content.offsets, found, side="right")}
        texts, _ = batch.texts()
        contents = self.refused_contents
        if contents:
            rows |= {r for r, text in enumerate(texts) if any(c in text for c in contents)}
        asked = sorted(rows - content.errors.keys())
        hidden = self._hidden([texts[row] for row in asked])
        errors: dict[int, RowError] = {}
        for row, error in zip(asked, hidden, strict=True):
            try:
                for _ in split_special_tokens(self.vocabulary, texts[row], "refuse"):
                    pass
            except RowRefused as refused:
                error = earlier(refused.error, error)
            if error is not None:
                errors[row] = error
        return refuse_rows(content, errors) if errors else content

    def _hidden(self, texts: list[str]) -> list[RowError | None]:
        """Refusals of texts for what only the library finds in them."""
        if not (texts and self.has_hidden_tokens):
            return [None] * len(texts)
        found, plain = (self._encodings(texts, is_plain, True) for is_plain in (False, True))
        special = {token.id: token for token in self.vocabulary.special_tokens if token.special}
        return [
            found_behind_normalizers(*row, special) for row in zip(texts, found, plain, strict=True)
        ]

    def _add_spans(self, content: Content, batch: Batch, options: EncodeOptions) -> Content:
        """Spans from the tokens' lengths; rows that these do not spell go to the reference.

        So do rows with a token that takes white space, as the next one may begin in it.
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
        right = self.reference.encode(batch.select(rows.tolist(), options), options)
        return join_rows([(others, take_rows(content, others)), (rows, right)], len(batch))


def read_tokenizer(document: str) -> Tokenizer:
    """The library's object of a tokenizer.json, which leaves no memory behind.

    Raises:
        VocabularyError: it does not read it.
    """
    try:
        made = Tokenizer.from_str(document)
    except BaseException as error:  # It raises nothing narrower, and panics on some.
        reraise_unless_failure(error)
        message = f"the library tokenizers does not read it: {error}"
        raise VocabularyError.at("tokenizer.json", message) from error
    # The library never gives its cache of words back: 55 kB of the smallest vocabulary, at most
    # 10,000 words. English has 3.0 MB/s with it and 2.9 without.
    if hasattr(made.model, "_resize_cache"):
        made.model._resize_cache(0)
    return made


def _may_drop(vocabulary: Vocabulary) -> bool:
    """Whether symbols may be left out, behind which the offsets of `tokenizers` are wrong."""
    model = vocabulary.model
    if not isinstance(model, Bpe) or model.unknown_id is not None:
        return False
    known = set(vocabulary.tokens)
    return not (model.byte_level and all(bytes([byte]) in known for byte in UTF8_BYTES))


def _has_unknown(vocabulary: Vocabulary) -> bool:
    return isinstance(vocabulary.model, Bpe) and vocabulary.model.unknown_id is not None


def _stripping_contents(vocabulary: Vocabulary) -> list[str]:
    """Special tokens that may leave no id where lstrip or rstrip took their text."""
    if not any(token.lstrip or token.rstrip for token in vocabulary.special_tokens):
        return []
    return [t.content for t in vocabulary.special_tokens if t.matched and t.special]


def _in_bytes(text: str, in_characters: Int64s) -> Int64s:
    """int64[T, 2] bytes from characters."""
    if text.isascii():
        return in_characters
    characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (characters > 0x7F).astype(np.int64) + (characters > 0x7FF) + (characters > 0xFFFF)
    return offsets_from_lengths(sizes)[in_characters]
