"""Makes flat NumPy arrays of a vocabulary, which engines read instead of Python objects.

The arrays are made once, when a vocabulary is loaded; the CPU and the GPU engine use the same ones.
Every array is read-only. This module does not depend on batches or engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.types import Bpe, Characters, Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.bert_basic_tokenizer import PLAIN_CHARACTERS
from vocabularies.preprocessing.unicode_classes import class_mask

BASE, SINGLE, SPACE, OTHER = range(4)
DROPPED = -1
"""The entry of a character table for a character that has no id."""
ASCII = 128
Scalar = TypeVar("Scalar", bound=np.generic)
PYTHON_SPACE = [byte for byte in range(ASCII) if chr(byte).isspace()]


@dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """The bytes of every token.

    Attributes:
        data: uint8[N], the tokens joined; an id without a token has no bytes.
        offsets: int64[V + 1], where each token begins in `data`.
        lengths: int32[V], the number of bytes of each token; -1 for an id without a token.
        is_special: bool[V], the ids that are omitted when decoding with `skip_special_tokens`.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]
    is_special: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class KmerTable:
    """The letters of a k-mer vocabulary, after its case rule has been applied.

    Attributes:
        codes: int32[256], the letter index of each byte, 0..n-1. A byte that is not a letter has
            n**k, so that the number of any k-mer that contains it is n**k or more.
        classes: uint8[256], BASE for a letter; SINGLE for another byte with an id of its own; SPACE
            for white space that gives no id; OTHER for the rest.
        letter_ids: int32[256], the id of each single letter; the unknown id where a letter has
            none.
        is_space: bool[256], ASCII white space as defined by Python's str.isspace.
        needs_reference: bool[256], bytes that may make a row need the reference: non-ASCII ones,
            one byte of each special token that is matched, and with whitespace "words" every byte
            at which `bert_basic_tokenizer` may split a k-mer.
        is_sign: bool[256], ASCII signs that are neither letters nor part of a special token. Their
            only effect is to split a k-mer. Used with whitespace "words" and k-mers at every base.
        num_kmers: n**k.
    """

    codes: NDArray[np.int32]
    classes: NDArray[np.uint8]
    letter_ids: NDArray[np.int32]
    is_space: NDArray[np.bool_]
    needs_reference: NDArray[np.bool_]
    is_sign: NDArray[np.bool_]
    num_kmers: int


@dataclass(frozen=True, slots=True, eq=False)
class CharacterTable:
    """One id for each byte or code point, after the case rule has been applied.

    Attributes:
        ids: int32[M + 1], indexed by byte or code point, with at least 256 entries. The last entry
            applies to all code points from M on. DROPPED: the character has no id.
        drops: whether any entry is DROPPED.
        by_byte: whether `ids` is indexed by byte (True) or by code point (False).
        ascii_only: whether the reference must encode every row that has a non-ASCII byte.
        needs_reference: bool[256], bytes that may make a row need the reference.
    """

    ids: NDArray[np.int32]
    drops: bool
    by_byte: bool
    ascii_only: bool
    needs_reference: NDArray[np.bool_]


def token_table(vocabulary: Vocabulary) -> TokenTable:
    """Make the table of any vocabulary's tokens."""
    tokens = vocabulary.tokens
    holes = np.fromiter((token is None for token in tokens), np.bool_, len(tokens))
    filled = [token or b"" for token in tokens]
    lengths = np.fromiter(map(len, filled), np.int32, len(tokens))
    offsets = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    lengths[holes] = -1
    is_special = np.zeros(len(tokens), np.bool_)
    is_special[list(vocabulary.special_ids)] = True
    data = np.frombuffer(b"".join(filled), np.uint8)
    return TokenTable(data, _frozen(offsets), _frozen(lengths), _frozen(is_special))


def kmer_table(vocabulary: Vocabulary) -> KmerTable:
    """Make the table of a k-mer vocabulary's letters."""
    model = vocabulary.model
    assert isinstance(model, Kmers)
    num_kmers: int = len(model.letters) ** model.k
    codes = np.full(256, num_kmers, np.int32)
    letter_ids = np.full(256, model.unknown_id, np.int32)
    classes = np.full(256, OTHER, np.uint8)
    is_space = _flags(PYTHON_SPACE)
    if model.whitespace == "skip":
        classes[is_space] = SPACE
    for letter, token_id in model.letter_ids:
        letter_ids[ord(letter)] = token_id
        classes[ord(letter)] = SINGLE
    for code, letter in enumerate(model.letters):
        codes[ord(letter)] = code
        classes[ord(letter)] = BASE
    if model.case == "upper":
        for table in (codes, letter_ids, classes):
            table[ord("a") : ord("z") + 1] = table[ord("A") : ord("Z") + 1]
    needs_reference = mark_special_bytes(vocabulary)
    needs_reference[ASCII:] = True
    is_sign = np.zeros(256, np.bool_)
    if model.whitespace == "words":
        signs = _flags([byte for byte in range(ord("!"), 127) if chr(byte) not in PLAIN_CHARACTERS])
        if model.frame == "sequence" and model.stride == 1 and model.remainder == "drop":
            is_sign = signs & ~needs_reference & (codes == num_kmers)
        needs_reference[:ASCII] |= [chr(byte) not in PLAIN_CHARACTERS for byte in range(ASCII)]
    return KmerTable(
        codes=_frozen(codes),
        classes=_frozen(classes),
        letter_ids=_frozen(letter_ids),
        is_space=_frozen(is_space),
        needs_reference=_frozen(needs_reference),
        is_sign=_frozen(is_sign),
        num_kmers=num_kmers,
    )


def may_split_kmers(vocabulary: Vocabulary, text: str) -> bool:
    """Return whether the text may have a k-mer that must be split; only the reference does this."""
    model = vocabulary.model
    if not isinstance(model, Kmers) or model.whitespace != "words":
        return False
    return bool(
        kmer_table(vocabulary).needs_reference[np.frombuffer(text.encode(), np.uint8)].any()
    )


def character_table(vocabulary: Vocabulary) -> CharacterTable | None:
    """Make the table of a vocabulary that encodes each character separately; None for others.

    That is a Characters model, and a Bpe over characters that has no merges (GPN's).
    """
    model = vocabulary.model
    needs_reference = mark_special_bytes(vocabulary)
    if isinstance(model, Bpe):
        return (
            _bpe_characters(vocabulary, model, needs_reference)
            if _is_plain(vocabulary, model)
            else None
        )
    if not isinstance(model, Characters) or vocabulary.normalizers:
        return None
    if vocabulary.pretokenizer != "none":
        return None
    by_byte, upper = model.unit == "byte", model.case == "upper"
    unknown = DROPPED if model.unknown_id is None else model.unknown_id
    ids = np.full(max(256, *(ord(c) + 2 for c, _ in model.letter_ids), 0), unknown, np.int32)
    for character, token_id in model.letter_ids:
        ids[ord(character)] = token_id
    if upper:
        ids[ord("a") : ord("z") + 1] = ids[ord("A") : ord("Z") + 1]
    if upper:
        needs_reference[ASCII:] = True
    return CharacterTable(_frozen(ids), False, by_byte, upper, _frozen(needs_reference))


def _is_plain(vocabulary: Vocabulary, model: Bpe) -> bool:
    """Return whether the id of every ASCII character is independent of the characters beside it."""
    return (
        not model.merges
        and not model.byte_level
        and not model.ignore_merges
        and not model.fuse_unknown
        and vocabulary.pretokenizer in ("none", "whitespace", "whitespace_split")
        and all(step.kind == "lowercase" for step in vocabulary.normalizers)
    )


def _bpe_characters(
    vocabulary: Vocabulary, model: Bpe, needs_reference: NDArray[np.bool_]
) -> CharacterTable:
    unknown = DROPPED if model.unknown_id is None else model.unknown_id
    ids = np.full(257, unknown, np.int32)
    special = {token.id for token in vocabulary.special_tokens}
    in_order = sorted(range(len(vocabulary)), key=lambda token_id: token_id not in special)
    for token_id in in_order:
        token = vocabulary.tokens[token_id]
        if token is not None and len(token) == 1 and token.isascii():
            ids[token[0]] = token_id
    if vocabulary.normalizers:
        ids[ord("A") : ord("Z") + 1] = ids[ord("a") : ord("z") + 1]
    if vocabulary.pretokenizer != "none":
        ids[:ASCII][class_mask("s", "rust")[:ASCII]] = DROPPED
    needs_reference[ASCII:] = True
    drops = bool((ids[:ASCII] == DROPPED).any())
    return CharacterTable(_frozen(ids), drops, False, True, _frozen(needs_reference))


def mark_special_bytes(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Mark one byte of each matched special token, bool[256]; for a letter, both cases.

    A text with none of these bytes contains no special token. A sign is marked where the token has
    one, because every sequence contains letters.
    """
    marks = np.zeros(256, np.bool_)
    for token in vocabulary.special_tokens:
        if token.matched:
            content = token.content.encode()
            signs = [byte for byte in content if byte < ASCII and not chr(byte).isalnum()]
            mark = signs[0] if signs else content[0]
            marks[[mark, *bytes([mark]).upper(), *bytes([mark]).lower()]] = True
    return marks


def _flags(bytes_: list[int]) -> NDArray[np.bool_]:
    flags = np.zeros(256, np.bool_)
    flags[bytes_] = True
    return flags


def _frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    array.flags.writeable = False
    return array
