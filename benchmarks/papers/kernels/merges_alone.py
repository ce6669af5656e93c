"""Byte-pair encoding of a whole text, without the regular expression that splits it first.

`MergesAlone` is Hugging Face's implementation, with which everything else here is compared;
the kernels of block_merge.cu read a `MergeTable`. This module uses no device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from vocabularies.model.byte_alphabet import to_alphabet
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

NO_PAIR = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
FACTOR = 0x9E37_79B9_7F4A_7C15
Ids = list[int]


class MergesAlone:
    """Encodes texts by merges alone, with Hugging Face tokenizers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Build the tokenizer of a byte-level BPE vocabulary, without special tokens."""
        tokenizer = Tokenizer(_model(vocabulary))
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text."""
        return [row.ids for row in self._tokenizer.encode_batch_fast(texts)]

    def encode_bytes(self, chunks: Iterable[bytes]) -> list[Ids]:
        """Return the ids of chunks, which may end inside a character."""
        alphabet = Tokenizer(self._tokenizer.model)  # The chunks come in the byte-level alphabet.
        return [alphabet.encode(to_alphabet(chunk)).ids for chunk in chunks]


def with_pattern(vocabulary: Vocabulary) -> Tokenizer:
    """Build Hugging Face's GPT-2 tokenizer of a vocabulary, whose pattern splits the text first."""
    tokenizer = Tokenizer(_model(vocabulary))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = ByteLevelDecoder()
    special = [AddedToken(token.content, special=True) for token in vocabulary.special_tokens]
    tokenizer.add_special_tokens(special)
    return tokenizer


def _model(vocabulary: Vocabulary) -> BPE:
    names = [to_alphabet(token) if token else "" for token in vocabulary.tokens]
    special = {token.id for token in vocabulary.special_tokens}
    known = {name: i for i, name in enumerate(names) if name and i not in special}
    merges = [(names[left], names[right]) for left, right in _merges_of(vocabulary)]
    return BPE(vocab=known | {names[i]: i for i in special}, merges=merges)


def _merges_of(vocabulary: Vocabulary) -> Sequence[tuple[int, int]]:
    if not isinstance(vocabulary.model, Bpe):
        raise TypeError(f"a {vocabulary.kind} vocabulary has no merges")
    return vocabulary.model.merges


@dataclass(frozen=True, slots=True, eq=False)
class MergeTable:
    """Merges in a hash table with linear probing, at most half full.

    Attributes:
        places: uint64[2**n, 2]: key (left << 32 | right), and value (merged << 32 | rank); the key
            of an empty place is NO_PAIR.
        byte_ids: uint32[256], the id of each byte.
    """

    places: NDArray[np.uint64]
    byte_ids: NDArray[np.uint32]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> MergeTable:
        """Fill the table with the merges of a byte-level BPE vocabulary."""
        merges = _merges_of(vocabulary)
        ids = {token: i for i, token in enumerate(vocabulary.tokens) if token}
        num_places = 1 << (2 * len(merges)).bit_length()
        places = np.full((num_places, 2), NO_PAIR, np.uint64)
        taken: set[int] = set()
        for rank, (left, right) in enumerate(merges):
            left_token, right_token = vocabulary.tokens[left], vocabulary.tokens[right]
            assert left_token is not None and right_token is not None
            key = left << 32 | right
            place = (key * FACTOR >> 32) % (1 << 32) % num_places
            while place in taken:
                place = (place + 1) % num_places
            taken.add(place)
            places[place] = key, ids[left_token + right_token] << 32 | rank
        byte_ids = np.array([ids[bytes([byte])] for byte in range(256)], np.uint32)
        return cls(places, byte_ids)

    @property
    def mask(self) -> int:
        """The number of places minus one, by which hashes are reduced."""
        return len(self.places) - 1


def chunks_of(text: bytes, num_bytes: int) -> list[bytes]:
    """Cut a text into chunks of a fixed size, as GPUTok does, wherever the cuts come."""
    return [text[begin : begin + num_bytes] for begin in range(0, len(text), num_bytes)]


def offsets_of(texts: Sequence[bytes]) -> NDArray[np.uint32]:
    """Return where each text begins if they follow each other, and where the last one ends."""
    ends = itertools.accumulate(map(len, texts), initial=0)
    return np.fromiter(ends, np.uint32, len(texts) + 1)
