"""A byte-level BPE vocabulary as the hash tables that device code looks up.

NumPy only: made once when a vocabulary is loaded and then copied to the device. The hash functions
are those of cuda/hash.cuh, and what a table holds is what encoding a token's bytes gives: with
`ignore_merges` every token, without it only those that the merges reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.reachable import reachable_tokens
from vocabularies.reference_bpe import bpe_rules
from vocabularies.vocabulary import Bpe, Vocabulary

__all__ = ["BpeTables", "NotCovered", "bpe_tables"]

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

MAX_SHORT, MAX_LONG = 12, 28
NO_RANK = NO_ID = 0xFFFFFFFF
MAX_IDS, MAX_MERGES = 1 << 21, 1 << 22
TOKEN_LOAD, PAIR_LOAD = 0.25, 0.25
EMPTY_PAIR = np.uint64(0xFFFFFFFFFFFFFFFF)


class NotCovered(ValueError):
    """The kernels cannot compute this vocabulary; the message says why, for people."""


@dataclass(frozen=True, slots=True, eq=False)
class BpeTables:
    """What the kernels read; see cuda/job.cuh and cuda/tokens.cuh.

    Attributes:
        short_tokens: uint32[2 * buckets, 4], tokens of 1..12 bytes: three words of bytes and
            length << 28 | id; a zero meta word is empty.
        long_tokens: uint32[entries, 8], tokens of 13..28 bytes: seven words and length << 27 | id.
        token_places: uint32[entries], ids of tokens of more than 28 bytes; NO_ID is empty.
        pairs: uint64[2 * buckets], left << 43 | right << 22 | rank; all ones is empty.
        byte_pairs: uint32[65536], rank of the tokens of two bytes, first << 8 | second; NO_RANK.
        byte_ids: uint32[256], the token of each byte.
        merged: uint32[M], the id that each rank's merge gives.
        token_bytes, token_begins: uint8[N] and uint32[V + 1], the bytes of every id.
        max_token: bytes of the longest token.
        ignore_merges: whether a pretoken that is a token is that token.
        seed: key of the hash functions.
    """

    short_tokens: UInt32s
    long_tokens: UInt32s
    token_places: UInt32s
    pairs: UInt64s
    byte_pairs: UInt32s
    byte_ids: UInt32s
    merged: UInt32s
    token_bytes: NDArray[np.uint8]
    token_begins: UInt32s
    max_token: int
    ignore_merges: bool
    seed: int

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (getattr(self, name) for name in self.__slots__)
        return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))


def bpe_tables(vocabulary: Vocabulary, seed: int) -> BpeTables:
    """The tables of a vocabulary.

    Raises:
        NotCovered: the model is no BPE over all 256 bytes, or too large for the tables' fields.
    """
    model = vocabulary.model
    if not isinstance(model, Bpe) or not model.byte_level:
        raise NotCovered("the model is no byte-level BPE")
    if len(vocabulary) > MAX_IDS or len(model.merges) > MAX_MERGES:
        raise NotCovered(f"more than {MAX_IDS} ids or {MAX_MERGES} merges")
    rules = bpe_rules(vocabulary)
    byte_ids = [rules.token_ids.get(bytes([byte])) for byte in range(256)]
    if None in byte_ids:
        raise NotCovered(f"the byte {byte_ids.index(None):#04x} has no token")
    pairs = np.array([*rules.merges], np.uint64).reshape(-1, 2)
    results = np.array([*rules.merges.values()], np.uint32).reshape(-1, 2)
    ranks = results[:, 0]
    merged = np.full(len(model.merges), NO_ID, np.uint32)
    merged[ranks] = results[:, 1]
    entries = pairs[:, 0] << np.uint64(43) | pairs[:, 1] << np.uint64(22) | ranks
    lowest = np.array(byte_ids, np.uint32)
    tokens, ids = _tokens_to_find(vocabulary, rules.token_ids, entries, merged, lowest)
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    all_tokens = [token or b"" for token in vocabulary.tokens]
    begins = np.zeros(len(all_tokens) + 1, np.uint32)
    np.cumsum([len(token) for token in all_tokens], out=begins[1:])
    short, rest = lengths <= MAX_SHORT, lengths > MAX_LONG
    long = ~short & ~rest
    return BpeTables(
        short_tokens=_token_table(tokens, ids, lengths, np.flatnonzero(short), 3, 28, 2, seed),
        long_tokens=_token_table(tokens, ids, lengths, np.flatnonzero(long), 7, 27, 1, seed),
        token_places=_longest_table(tokens, ids, np.flatnonzero(rest), seed),
        pairs=_pair_table(pairs, entries, seed),
        byte_pairs=_byte_pairs(pairs, ranks, lowest),
        byte_ids=lowest,
        merged=merged,
        token_bytes=np.frombuffer(b"".join(all_tokens), np.uint8),
        token_begins=begins,
        max_token=int(lengths.max(initial=1)),
        ignore_merges=model.ignore_merges,
        seed=seed,
    )


def _tokens_to_find(
    vocabulary: Vocabulary,
    token_ids: dict[bytes, int],
    entries: UInt64s,
    merged: UInt32s,
    byte_ids: UInt32s,
) -> tuple[list[bytes], UInt32s]:
    """The tokens that a look-up may answer with, and the ids it answers."""
    model = vocabulary.model
    assert isinstance(model, Bpe)
    tokens = [token for token in token_ids if token]
    if model.ignore_merges:
        return tokens, np.fromiter((token_ids[token] for token in tokens), np.uint32, len(tokens))
    order = np.sort(entries)
    keys = (order >> np.uint64(22)).astype(np.int64)

    def rank_of(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted = left << 21 | right
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        ranks = (order[place] & np.uint64(MAX_MERGES - 1)).astype(np.int64)
        ranks[keys[place] != wanted] = 1 << 32
        return ranks

    if not len(entries):
        tokens = [token for token in tokens if len(token) == 1]
        return tokens, np.array([token_ids[token] for token in tokens], np.uint32)
    given = reachable_tokens(tokens, byte_ids.astype(np.int64), rank_of, merged.astype(np.int64))
    found = np.flatnonzero(given >= 0)
    return [tokens[i] for i in found.tolist()], given[found].astype(np.uint32)


def _mix(hashes: UInt32s, words: UInt32s) -> UInt32s:
    hashes = (hashes ^ words) * np.uint32(0x9E3779B1)
    return hashes ^ hashes >> np.uint32(15)


def _fill(hashes: UInt32s, num_buckets: int, per_bucket: int) -> NDArray[np.int64]:
    """int64[n]: the slot of each key, by linear probing over buckets; a bucket fills up in order."""
    slots = np.empty(len(hashes), np.int64)
    used = np.zeros(num_buckets, np.int64)
    waiting = np.arange(len(hashes))
    buckets = (hashes & np.uint32(num_buckets - 1)).astype(np.int64)
    while len(waiting):
        order = np.argsort(buckets[waiting], kind="stable")
        waiting = waiting[order]
        mine = buckets[waiting]
        first = np.searchsorted(mine, mine)
        number = used[mine] + np.arange(len(mine)) - first
        fits = number < per_bucket
        slots[waiting[fits]] = mine[fits] * per_bucket + number[fits]
        used += np.bincount(mine[fits], minlength=num_buckets)
        waiting = waiting[~fits]
        buckets[waiting] = (buckets[waiting] + 1) % num_buckets
    return slots


def _num_buckets(num_keys: int, per_bucket: int, load: float) -> int:
    """A power of two with at most `load` of the slots used, and never all."""
    return 1 << max(1, int(np.ceil(np.log2(max(1, num_keys) / load / per_bucket))))


def _token_table(
    tokens: list[bytes],
    ids: UInt32s,
    lengths: NDArray[np.int64],
    chosen: NDArray[np.int64],
    num_words: int,
    length_shift: int,
    per_bucket: int,
    seed: int,
) -> UInt32s:
    """uint32[slots, num_words + 1]: the words of each chosen token and length << shift | id."""
    padded = b"".join(tokens[i].ljust(4 * num_words, b"\0") for i in chosen.tolist())
    words = np.frombuffer(padded, "<u4").reshape(-1, num_words)
    sizes = lengths[chosen].astype(np.uint32)
    hashes = np.uint32(seed) ^ sizes
    for column in range(num_words):
        hashes = _mix(hashes, words[:, column])
    hashes = _mix(hashes, sizes)
    num_buckets = _num_buckets(len(chosen), per_bucket, TOKEN_LOAD)
    table = np.zeros((num_buckets * per_bucket, num_words + 1), np.uint32)
    slots = _fill(hashes, num_buckets, per_bucket)
    table[slots, :num_words] = words
    table[slots, num_words] = sizes << np.uint32(length_shift) | ids[chosen]
    return table


def _longest_table(
    tokens: list[bytes], ids: UInt32s, chosen: NDArray[np.int64], seed: int
) -> UInt32s:
    """uint32[slots]: ids of the tokens that are too long for the other tables."""
    hashes = np.empty(len(chosen), np.uint32)
    for row, i in enumerate(chosen.tolist()):
        value = seed ^ len(tokens[i])
        for byte in tokens[i]:
            value = (value ^ byte) * 0x9E3779B1 & 0xFFFFFFFF
            value ^= value >> 15
        hashes[row] = value
    num_buckets = _num_buckets(len(chosen), 1, TOKEN_LOAD)
    table = np.full(num_buckets, NO_ID, np.uint32)
    table[_fill(hashes, num_buckets, 1)] = ids[chosen]
    return table


def _pair_table(pairs: UInt64s, entries: UInt64s, seed: int) -> UInt64s:
    left, right = (pairs[:, side].astype(np.uint32) for side in (0, 1))
    hashes = _mix(_mix(np.full(len(left), seed, np.uint32), left), right)
    num_buckets = _num_buckets(len(entries), 2, PAIR_LOAD)
    table = np.full(2 * num_buckets, EMPTY_PAIR, np.uint64)
    table[_fill(hashes, num_buckets, 2)] = entries
    return table


def _byte_pairs(pairs: UInt64s, ranks: UInt32s, byte_ids: UInt32s) -> UInt32s:
    """uint32[65536]: the rank of two bytes' tokens; several bytes may have the same token."""
    table = np.full((256, 256), NO_RANK, np.uint32)
    bytes_of: dict[int, list[int]] = {}
    for byte, token_id in enumerate(byte_ids.tolist()):
        bytes_of.setdefault(token_id, []).append(byte)
    known = np.isin(pairs, byte_ids).all(axis=1)
    for (left, right), rank in zip(pairs[known].tolist(), ranks[known].tolist(), strict=True):
        for first in bytes_of[left]:
            table[first, bytes_of[right]] = rank
    return table.reshape(-1)
