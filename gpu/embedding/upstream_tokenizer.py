"""Provides one interface for tokenizers of all libraries: a batch is encoded to ragged ids.

Tokenizers are recognized by their methods; neither `tokenizers` nor `transformers` is imported.
Ids come without padding and truncation, and with or without begin and end tokens, unless the
tokenizer's `encode` has no option for that. This module uses no tables and no devices.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError, RowRefused
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

CONTENT = EncodeOptions(add_special_tokens=False)
FRAMED = EncodeOptions(add_special_tokens=True)
MAX_ID = (1 << 31) - 1


class Ragged(NamedTuple):
    """The ids of the rows of a batch.

    Attributes:
        ids: int32[T], the ids of all rows.
        offsets: int64[B + 1], where the ids of each row begin.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]


EncodeBatch = Callable[[Batch], Ragged]
"""Encodes a batch; raises SequenceRefused where a row cannot be encoded."""


class SequenceRefused(ValueError):
    """A row cannot be encoded.

    Attributes:
        row: the number of the row in the batch.
        problem: why it cannot be encoded, without the number.
    """

    def __init__(self, row: int, problem: str) -> None:
        self.row, self.problem = row, problem
        super().__init__(f"row {row}: {problem}")


class Engine(Protocol):
    """Encodes batches for a Vocabulary, as GpuEngine does."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode a batch."""


def make_upstream_encoder(
    tokenizer: Any, engine: Engine | None = None, *, add_special_tokens: bool = False
) -> EncodeBatch:
    """Make the function that encodes batches by a tokenizer.

    Args:
        tokenizer: a Vocabulary; a `tokenizers.Tokenizer`; a tokenizer with the interface of
            `transformers`, called with a list of texts; or any object with `encode(text)`, which
            returns a list of ids or an object with `ids`.
        engine: encodes for a Vocabulary instead of the reference.
        add_special_tokens: whether rows have their begin and end tokens.

    Raises:
        TypeError: the tokenizer is none of these.

    The encoder raises SequenceRefused where a row is not UTF-8, where the tokenizer refuses a row
    or raises an error for it, and where an id is below 0 or has more than 31 bits.
    """
    if isinstance(tokenizer, Vocabulary):
        options = FRAMED if add_special_tokens else CONTENT
        return _make_vocabulary_encoder(tokenizer, engine, options)
    own = {"add_special_tokens": add_special_tokens}
    if callable(getattr(tokenizer, "encode_batch", None)) and hasattr(tokenizer, "no_padding"):
        plain = _copy_without_padding(tokenizer)
        return _make_text_encoder(
            lambda texts: (encoding.ids for encoding in plain.encode_batch(texts, **own))
        )
    if callable(tokenizer) and hasattr(tokenizer, "convert_tokens_to_ids"):
        return _make_text_encoder(lambda texts: tokenizer(texts, **own)["input_ids"])
    if callable(encode := getattr(tokenizer, "encode", None)):
        if not _takes_special_tokens(encode):
            own = {}
        return _make_text_encoder(lambda texts: (_ids(encode(text, **own)) for text in texts))
    raise TypeError(
        f"a {type(tokenizer).__name__} has no method encode and cannot be called with texts"
    )


def _make_vocabulary_encoder(
    vocabulary: Vocabulary, engine: Engine | None, options: EncodeOptions
) -> EncodeBatch:
    if engine is not None:

        def encode(batch: Batch) -> Ragged:
            encoded = engine.encode(vocabulary, batch.select(range(len(batch)), options))
            _refuse_first(encoded.errors)
            return Ragged(encoded.ids.astype(np.int32, copy=False), encoded.offsets)

        return encode
    if isinstance(vocabulary.model, Upstream):
        raise TypeError(f"this vocabulary needs an engine: {vocabulary.model.reason}")
    return _make_text_encoder(lambda texts: _encode_by_reference(vocabulary, texts, options))


def _refuse_first(errors: Mapping[int, RowError]) -> None:
    """Raise SequenceRefused for the first row that has an error."""
    if errors:
        row = min(errors)
        where = f" ({errors[row].where})" if errors[row].where else ""
        raise SequenceRefused(row, errors[row].message + where)


def _encode_by_reference(
    vocabulary: Vocabulary, texts: Sequence[str], options: EncodeOptions
) -> Iterator[Sequence[int]]:
    for row, text in enumerate(texts):
        try:
            yield reference.encode(vocabulary, text, options).ids
        except RowRefused as refused:
            raise SequenceRefused(row, refused.error.message) from refused


def _make_text_encoder(encode: Callable[[list[str]], Iterable[Sequence[int]]]) -> EncodeBatch:
    def encode_batch(batch: Batch) -> Ragged:
        texts, errors = batch.texts()
        _refuse_first(errors)
        # Some raise an error for an empty list.
        rows = _encode_texts(encode, list(texts)) if texts else []
        if len(rows) != len(texts):
            raise ValueError(f"the tokenizer gave {len(rows)} rows of ids for {len(texts)} texts")
        offsets = offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
        ids = np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1]))
        wrong = np.flatnonzero((ids < 0) | (ids > MAX_ID))
        if len(wrong):
            row = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
            raise SequenceRefused(row, f"the tokenizer gives the id {ids[wrong[0]]}")
        return Ragged(ids.astype(np.int32), offsets)

    return encode_batch


def _encode_texts(
    encode: Callable[[list[str]], Iterable[Sequence[int]]], texts: list[str]
) -> list[Sequence[int]]:
    """Encode texts one batch at a time; after an error, text by text to find the row.

    Raises:
        SequenceRefused: the tokenizer raises an error for a row; the first such row.
        RuntimeError: the tokenizer raises it; the cause may be the device instead of a row.
    """
    try:
        return list(encode(texts))
    except (SequenceRefused, RuntimeError, MemoryError):
        raise
    except Exception as error:  # Foreign code; `tokenizers` raises a bare Exception.
        if len(texts) > 1:
            for row, text in enumerate(texts):
                try:
                    _encode_texts(encode, [text])
                except SequenceRefused as refused:
                    raise SequenceRefused(row, refused.problem) from error
            raise
        problem = f"the tokenizer has an error: {type(error).__name__}: {error}"
        raise SequenceRefused(0, problem) from error


def _copy_without_padding(tokenizer: Any) -> Any:
    """Copy a `tokenizers.Tokenizer` without padding and truncation.

    Later changes of the caller's tokenizer do not reach the copy. A tokenizer with parts in Python
    cannot be copied, nor one in which several strings share an id, as T and U may; it is returned
    itself where it neither pads nor truncates.

    Raises:
        TypeError: the tokenizer pads or truncates, and cannot be copied.
    """
    try:
        plain = copy.deepcopy(tokenizer)
        if plain.get_vocab() != tokenizer.get_vocab():
            raise ValueError("several strings share an id, and a copy keeps only one of them")
    except Exception as error:  # tokenizers raises a bare Exception.
        if tokenizer.padding is None and tokenizer.truncation is None:
            return tokenizer
        message = (
            f"the tokenizer pads or truncates, and a copy that does not cannot be made: {error}"
        )
        raise TypeError(message) from error
    plain.no_padding()
    plain.no_truncation()
    if hasattr(tokenizer, "encode_special_tokens"):  # deepcopy loses this setting.
        plain.encode_special_tokens = tokenizer.encode_special_tokens
    return plain


def _takes_special_tokens(encode: Callable[..., Any]) -> bool:
    """Return whether a function has the parameter `add_special_tokens`."""
    try:
        return "add_special_tokens" in inspect.signature(encode).parameters
    except ValueError:  # Some functions of extensions have no signature.
        return False


def _ids(encoded: Any) -> Sequence[int]:
    ids: Sequence[int] = getattr(encoded, "ids", encoded)
    return ids


def list_special_tokens(tokenizer: Any) -> list[str] | None:
    """List the texts that a tokenizer encodes as one token; None if it does not list them."""
    if callable(added := getattr(tokenizer, "get_added_tokens_decoder", None)):
        return [str(token.content) for token in added().values()]
    for name in ("added_tokens_decoder", "all_special_tokens"):
        if (added := getattr(tokenizer, name, None)) is not None:
            return [str(token) for token in (added.values() if hasattr(added, "values") else added)]
    return None


def find_number(source: Any, names: Iterable[str], least: int, most: int) -> int | None:
    """Find the first attribute that is an integer from `least` to `most`; names may have dots."""
    for name in names:
        value = find_attribute(source, name)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
    return None


def find_attribute(source: Any, name: str) -> Any:
    """Find an attribute by a name that may have dots; None if there is none."""
    for step in name.split("."):
        source = getattr(source, step, None)
    return source
