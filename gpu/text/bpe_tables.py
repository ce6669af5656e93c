"""Makes the hash tables of a byte-level BPE vocabulary in which kernels look pieces up.

NumPy only. The tables are made once, when a vocabulary is loaded, and copied to the device. The
hash functions are those of cuda/common/hash.cuh. The tables hold each token that its own bytes
encode to: with `ignore_merges` every token, without it those that the merges reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.text.boundary_filter import border_filters
from gpu.text.bpe_symbols import (
    EMPTY_PAIR,
    NO_ID,
    NUM_BYTES,
    ONLY_WHOLE,
    bpe_symbols,
    find_ranks,
    tokens_to_find,
)
from gpu.text.byte_run_period import run_steps
from gpu.text.byte_runs import run_tables
from gpu.text.cjk_characters import listed_characters
from gpu.text.hash_functions import hash_bytes, hash_pairs, hash_words, mixed
from gpu.text.hash_table import fill, num_buckets
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import make_bpe_rules

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

MAX_SHORT, MAX_LONG = 12, 28
NO_RANK = 0xFFFFFFFF
NO_BOUND = (1 << 10) - 1
TOKEN_LOAD, PAIR_LOAD = 1 / 6, 1 / 8
SHORT_A_BUCKET, PAIRS_A_BUCKET = 1, 2
FILTER_BITS = constant("FILTER_BITS")
MAX_LATE_TOKEN = 320  # Bytes. Pieces of longer ones are merged whole.


@dataclass(frozen=True, slots=True, eq=False)
class BpeTables:
    """The tables of a vocabulary; see cuda/common/job.cuh and cuda/text/lookup/token_tables.cuh.

    Attributes:
        short_tokens: uint32[entries, 4], tokens of 1..12 bytes: three words of bytes and
            length << 28 | id, or a reference to `listed_ids`. Slots whose last word is 0 are empty.
        long_tokens: uint32[entries, 8], tokens of 13..28 bytes: seven words and length << 27 | id.
        token_places: uint32[entries], ids of tokens of more than 28 bytes; empty slots are NO_ID.
        pairs: uint64[2 * buckets], left << 43 | right << 22 | rank of two symbols, see bpe_symbols;
            empty slots are all ones.
        byte_pairs: uint32[65536], the rank of two bytes, second << 8 | first, or NO_RANK.
        pair_filter: uint32[2**(FILTER_BITS - 5)], a bit for each pair: the upper FILTER_BITS - 5
            bits of its hash choose the word, the lower 5 the bit.
        run_numbers, run_rows: see gpu.text.byte_runs.
        run_steps: see gpu.text.byte_run_period.
        listed_ids: uint32[characters, 4], see gpu.text.cjk_characters.
        symbol_ids: uint32[256 + M], the id of each symbol.
        borders, byte_borders: see gpu.text.boundary_filter.
        token_bytes: uint8[N], the bytes of all ids, joined.
        token_begins: uint32[V + 1], where the bytes of each id begin.
        max_token: the bytes of the longest token.
        has_whole_only: whether an id in a table has the bit ONLY_WHOLE, so that it matches a whole
            pretoken but no part of one.
        rank_bounds: uint16[M], how far above each rank the lowest rank of a pair is that contains
            the result of its merge, see `_rank_bounds`; 0 if it is not above.
        seed: the key of the hash functions.
    """

    short_tokens: UInt32s
    long_tokens: UInt32s
    token_places: UInt32s
    pairs: UInt64s
    byte_pairs: UInt32s
    pair_filter: UInt32s
    run_numbers: UInt32s
    run_rows: UInt32s
    run_steps: NDArray[np.uint8]
    listed_ids: UInt32s
    symbol_ids: UInt32s
    rank_bounds: NDArray[np.uint16]
    borders: UInt32s
    byte_borders: UInt32s
    token_bytes: NDArray[np.uint8]
    token_begins: UInt32s
    max_token: int
    has_whole_only: bool
    seed: int

    @property
    def num_bytes(self) -> int:
        """The bytes of all arrays."""
        arrays = (getattr(self, name) for name in self.__slots__)
        return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))


def bpe_tables(vocabulary: Vocabulary, seed: int) -> BpeTables:
    """Make the tables of a vocabulary.

    Raises:
        NotCovered: the model is not a BPE over all 256 bytes, or the kernels cannot encode it.
    """
    model, symbols = vocabulary.model, bpe_symbols(vocabulary)
    rules = make_bpe_rules(vocabulary)
    assert isinstance(model, Bpe)
    left, right, symbol_ids = symbols.left, symbols.right, symbols.symbol_ids
    rank_of = find_ranks(symbols.entries)
    tokens, ids = tokens_to_find(model, symbols.token_ids, rank_of, symbol_ids)
    pieces, found, listed_ids = listed_characters(tokens, rank_of, symbol_ids)
    num_tokens = len(tokens)
    tokens, ids = [*tokens, *pieces], np.concatenate([ids, found])
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    max_token = int(lengths[:num_tokens].max(initial=1))
    rank_bounds = _rank_bounds(left, right, symbols.ranks, len(model.merges))
    if max_token > MAX_LATE_TOKEN and not rank_bounds.all():
        raise NotCovered(f"merges are out of order, and a token has {max_token} bytes")
    all_tokens = [token or b"" for token in vocabulary.tokens]
    begins = np.zeros(len(all_tokens) + 1, np.uint32)
    np.cumsum([len(token) for token in all_tokens], out=begins[1:])
    short, rest = lengths <= MAX_SHORT, lengths > MAX_LONG
    long = ~short & ~rest
    byte_pairs = np.full((NUM_BYTES, NUM_BYTES), NO_RANK, np.uint32)
    of_bytes = (left < NUM_BYTES) & (right < NUM_BYTES)
    byte_pairs[right[of_bytes], left[of_bytes]] = symbols.ranks[of_bytes]
    token_bytes = np.frombuffer(b"".join(all_tokens), np.uint8)
    filters = border_filters(token_bytes, begins, seed)
    runs = run_tables(
        rules,
        symbols.id_pairs,
        symbols.id_pair_ranks,
        symbol_ids,
        token_bytes,
        begins,
    )
    return BpeTables(
        short_tokens=_token_table(tokens, ids, lengths, np.flatnonzero(short), 3, 28, seed),
        long_tokens=_token_table(tokens, ids, lengths, np.flatnonzero(long), 7, 27, seed),
        token_places=_longest_table(tokens, ids, np.flatnonzero(rest), seed),
        pairs=_pair_buckets(left, right, symbols.entries, seed),
        byte_pairs=byte_pairs.reshape(-1),
        pair_filter=_pair_filter(left, right, seed),
        run_numbers=runs.run_numbers,
        run_rows=runs.run_rows,
        run_steps=run_steps(rules),
        listed_ids=listed_ids,
        symbol_ids=symbol_ids,
        rank_bounds=rank_bounds,
        borders=filters.borders,
        byte_borders=filters.byte_borders,
        token_bytes=token_bytes,
        token_begins=begins,
        max_token=max_token,
        has_whole_only=bool((ids[:num_tokens] & ONLY_WHOLE).any()),
        seed=seed,
    )


def _rank_bounds(
    left: UInt32s, right: UInt32s, ranks: UInt32s, num_merges: int
) -> NDArray[np.uint16]:
    """Return the distance of each rank r to the lowest rank of a pair with the symbol 256 + r.

    A distance m << p, rounded down, is stored as 32 * p + m. It is 0 if the lowest rank is not
    above r, and NO_BOUND where no pair has the symbol.
    """
    first = np.full(NUM_BYTES + num_merges, NO_RANK, np.uint32)
    for part in (left, right):
        np.minimum.at(first, part, ranks)
    own, found = np.arange(num_merges), first[NUM_BYTES:].astype(np.int64)
    distance = np.maximum(found - own, 0)
    shift = np.maximum(np.frexp(distance.astype(np.float64))[1] - 5, 0)
    codes = 32 * shift + (distance >> shift)
    return np.where(found == NO_RANK, NO_BOUND, codes).astype(np.uint16)


def shift_of(table: NDArray[np.generic], per_bucket: int) -> int:
    """Return 32 - the bits of a bucket's number; a bucket has `per_bucket` entries."""
    return 32 - int(np.log2(len(table) // per_bucket))


def _token_table(
    tokens: list[bytes],
    ids: UInt32s,
    lengths: NDArray[np.int64],
    chosen: NDArray[np.int64],
    num_words: int,
    length_shift: int,
    seed: int,
) -> UInt32s:
    """Return uint32[slots, num_words + 1]: the words of each token and length << shift | id."""
    padded = b"".join(tokens[i].ljust(4 * num_words, b"\0") for i in chosen.tolist())
    words = np.frombuffer(padded, "<u4").reshape(-1, num_words)
    sizes = lengths[chosen].astype(np.uint32)
    per_bucket = SHORT_A_BUCKET if num_words == 3 else 1
    buckets = num_buckets(len(chosen), per_bucket, TOKEN_LOAD)
    table = np.zeros((buckets * per_bucket, num_words + 1), np.uint32)
    slots = fill(hash_words(words, sizes, seed), buckets, per_bucket)
    table[slots, :num_words] = words
    table[slots, num_words] = sizes << np.uint32(length_shift) | ids[chosen]
    return table


def _longest_table(
    tokens: list[bytes], ids: UInt32s, chosen: NDArray[np.int64], seed: int
) -> UInt32s:
    """Return uint32[slots]: ids of the tokens that are too long for the other tables."""
    hashes = np.array([hash_bytes(tokens[i], seed) for i in chosen.tolist()], np.uint32)
    buckets = num_buckets(len(chosen), 1, TOKEN_LOAD)
    table = np.full(buckets, NO_ID, np.uint32)
    table[fill(hashes, buckets, 1)] = ids[chosen]
    return table


def _pair_filter(left: UInt32s, right: UInt32s, seed: int) -> UInt32s:
    bits = np.zeros(1 << FILTER_BITS, np.uint8)
    hashes = mixed(hash_pairs(left, right, seed))
    bits[hashes >> np.uint32(37 - FILTER_BITS) << np.uint32(5) | hashes & np.uint32(31)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _pair_buckets(left: UInt32s, right: UInt32s, entries: UInt64s, seed: int) -> UInt64s:
    hashes = hash_pairs(left, right, seed)
    buckets = num_buckets(len(entries), PAIRS_A_BUCKET, PAIR_LOAD)
    table = np.full(PAIRS_A_BUCKET * buckets, EMPTY_PAIR, np.uint64)
    table[fill(hashes, buckets, PAIRS_A_BUCKET)] = entries
    return table
