"""Numbers the symbols of a byte-level BPE vocabulary, and finds the tokens that a look-up can find.

Both engines merge symbols by these numbers: a symbol is a byte's value, or 256 + the rank of the
merge that makes it. So a pair's rank says which symbol the pair becomes.

    merges   (c a) 0   (ca t) 1          symbols   c 99   ca 256   cat 257
    pairs    99 97 → 0   256 116 → 1
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.text.reachable_tokens import NO_MERGE, RankOf, reachable_symbols
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import token_ids_of

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

NO_ID = 0xFFFFFFFF
MAX_IDS, MAX_SYMBOLS, MAX_RANKS = 1 << 26, 1 << 21, 1 << 22
ONLY_WHOLE = 1 << 26
NUM_BYTES = 256
EMPTY_PAIR = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class BpeSymbols:
    """The symbols and pairs of a vocabulary.

    Attributes:
        token_ids: {bytes: id} of all tokens.
        id_pairs: uint32[M, 2], the pairs of ids that are merged.
        id_pair_ranks: uint32[M], their ranks.
        left, right, ranks: uint32[P], the pairs of symbols and their ranks.
        entries: uint64[P], left << 43 | right << 22 | rank.
        symbol_ids: uint32[256 + M], the id of each symbol.
    """

    token_ids: Mapping[bytes, int]
    id_pairs: UInt32s
    id_pair_ranks: UInt32s
    left: UInt32s
    right: UInt32s
    ranks: UInt32s
    entries: UInt64s
    symbol_ids: UInt32s


def bpe_symbols(vocabulary: Vocabulary, needed: Collection[int] = range(NUM_BYTES)) -> BpeSymbols:
    """Number the symbols of a vocabulary.

    Args:
        vocabulary: the vocabulary.
        needed: the bytes that texts may have.

    Raises:
        NotCovered: the model is not a BPE over all needed bytes, or has too many ids or merges.
    """
    model = vocabulary.model
    if not isinstance(model, Bpe) or not model.byte_level:
        raise NotCovered("the model is not byte-level BPE")
    if len(vocabulary) > MAX_IDS or len(model.merges) >= MAX_SYMBOLS - NUM_BYTES:
        raise NotCovered(f"more than {MAX_IDS} ids or {MAX_SYMBOLS - NUM_BYTES} merges")
    token_ids = token_ids_of(vocabulary)
    byte_ids = [token_ids.get(bytes([byte])) for byte in range(NUM_BYTES)]
    for byte in sorted(needed):
        if byte_ids[byte] is None:
            raise NotCovered(f"the byte {byte:#04x} has no token")
    merge_ranks = np.arange(len(model.merges), dtype=np.uint32)
    symbol_ids = np.empty(NUM_BYTES + len(model.merges), np.uint32)
    symbol_ids[:NUM_BYTES] = [token_id or 0 for token_id in byte_ids]
    symbol_ids[NUM_BYTES:] = vocabulary.merged_ids
    pairs = vocabulary.merge_pairs.astype(np.uint32)
    left, right, ranks = _symbol_pairs(pairs, merge_ranks, symbol_ids, len(vocabulary))
    wide = np.uint64
    entries: UInt64s = left.astype(wide) << wide(43)
    entries |= right.astype(wide) << wide(22) | ranks.astype(wide)
    return BpeSymbols(
        token_ids=token_ids,
        id_pairs=pairs,
        id_pair_ranks=merge_ranks,
        left=left,
        right=right,
        ranks=ranks,
        entries=entries,
        symbol_ids=symbol_ids,
    )


def _symbol_pairs(
    pairs: UInt32s, ranks: UInt32s, symbol_ids: UInt32s, num_ids: int
) -> tuple[UInt32s, UInt32s, UInt32s]:
    """Convert pairs of ids to pairs of symbols, with their ranks.

    An id that several merges give has several symbols, and its pairs are repeated for each.

    Raises:
        NotCovered: there are too many such pairs.
    """
    order = np.argsort(symbol_ids, kind="stable")
    begins = np.zeros(num_ids + 1, np.int64)  # Of each id's symbols in that order.
    np.cumsum(np.bincount(symbol_ids, minlength=num_ids), out=begins[1:])
    first = [begins[pairs[:, side]] for side in (0, 1)]
    counts = [begins[pairs[:, side] + 1] - first[side] for side in (0, 1)]
    each = counts[0] * counts[1]
    if each.sum() > MAX_RANKS:
        raise NotCovered("too many merges give the same tokens")
    number = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    columns = np.repeat(counts[1], each)
    left = order[np.repeat(first[0], each) + number // np.maximum(1, columns)]
    right = order[np.repeat(first[1], each) + number % np.maximum(1, columns)]
    return left.astype(np.uint32), right.astype(np.uint32), np.repeat(ranks, each)


def find_ranks(entries: UInt64s) -> RankOf:
    """Return a function that finds the ranks of pairs of symbols.

    Args:
        entries: uint64[M], a merge each: left symbol << 43 | right symbol << 22 | rank.
    """
    order = np.sort(np.append(entries, EMPTY_PAIR))
    keys = (order >> np.uint64(22)).astype(np.int64)

    def rank_of(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        pairs = left << 21 | right
        place = np.searchsorted(keys, pairs)
        ranks = (order[place] & np.uint64(MAX_RANKS - 1)).astype(np.int64)
        ranks[keys[place] != pairs] = NO_MERGE
        return ranks

    return rank_of


def tokens_to_find(
    model: Bpe, token_ids: Mapping[bytes, int], rank_of: RankOf, symbol_ids: UInt32s
) -> tuple[list[bytes], UInt32s]:
    """Return the tokens that a look-up can find, and their ids.

    An id has the bit ONLY_WHOLE if its token matches a whole pretoken but no part of one.
    """
    tokens = [token for token in token_ids if token]
    symbols = reachable_symbols(tokens, rank_of)
    ids = symbol_ids[symbols]
    found = symbols >= 0
    if model.ignore_merges:
        own = np.fromiter((token_ids[token] for token in tokens), np.uint32, len(tokens))
        return tokens, np.where(found & (ids == own), own, own | np.uint32(ONLY_WHOLE))
    return [tokens[i] for i in np.flatnonzero(found).tolist()], ids[found]
