"""Which tokens end at a place: tables of cuda/dna_forward.cuh.

Letters are the four bases, as numbers of two bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.dna_longest import Longest, longest_tokens, spelled_tokens
from gpu.dna_pairs import Pairs
from gpu.job import constant

__all__ = ["Endings", "endings_of"]

UInt16s = NDArray[np.uint16]
UInt32s = NDArray[np.uint32]
Int64s = NDArray[np.int64]

NO_TOKEN, BEFORE_LETTERS = constant("NO_TOKEN"), constant("BEFORE_LETTERS")
FORWARD_IDS, FORWARD_K, RING = constant("FORWARD_IDS"), constant("FORWARD_K"), constant("RING")
GUESSED = 2
"""Letters before those that `likely` is indexed by, of which the most frequent answer counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """Tokens by the letters that they end with.

    Attributes:
        k: letters that the next two are indexed by, the last one's bits the lowest.
        likely: uint16[4**k], of tokens of these letters the last one of most texts with this end.
        longest: as of tokens spelled backwards.
        tokens: uint32[ids, 2], length | longest shorter token that ends it << 8, left class |
            right class << 16.
    """

    k: int
    likely: UInt16s
    longest: Longest
    tokens: UInt32s

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """By Job field."""
        return {
            "endings": self.tokens,
            "ending_likely": self.likely,
            "ending_longest": self.longest.first,
            "ending_longer": self.longest.longer,
            "ending_ranges": self.longest.ranges,
            "ending_keys": self.longest.keys,
            "ending_ids": self.longest.ids,
        }

    def numbers(self) -> dict[str, int]:
        """By Job field."""
        return {"ending_k": self.k, "num_endings": len(self.tokens)}


def endings_of(
    codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs, num_ids: int
) -> Endings | None:
    """The tables of tokens with their letters, ids and pairs, which are in the order of `ids`.

    None where there are no tokens, or more or longer ones than the kernel has room for.
    """
    if not ids or num_ids > FORWARD_IDS or max(map(len, ids)) > RING:
        return None
    k = min(FORWARD_K, 2 + len(ids).bit_length() // 2)
    tokens = np.zeros((num_ids, 2), np.uint32)
    for (token, token_id), left, right in zip(
        ids.items(), pairs.left.tolist(), pairs.right.tolist(), strict=True
    ):
        shorter = next((ids[token[n:]] for n in range(1, len(token)) if token[n:] in ids), NO_TOKEN)
        tokens[token_id] = len(token) | shorter << 8, left | right << 16
    backwards = {token[::-1]: letters[::-1] for token, letters in codes.items()}
    longest = longest_tokens(
        backwards, {token[::-1]: each for token, each in ids.items()}, k, BEFORE_LETTERS
    )
    spelled = spelled_tokens(codes, ids, k + GUESSED)
    last = _last_tokens(spelled, tokens, pairs.bits, k + GUESSED)
    likely = _likely_tokens(last, spelled, tokens, k)
    for table in (likely, longest.first):  # Letters that no text has: any token will do.
        table[table == NO_TOKEN] = min(ids.items(), key=lambda item: len(item[0]))[1]
    return Endings(k=k, likely=likely, longest=longest, tokens=tokens)


def _last_tokens(spelled: UInt16s, tokens: UInt32s, bits: UInt32s, most: int) -> UInt16s:
    """uint16[4**most]: the last token of each text of so many letters, the first one's bits lowest.

    The definition of dna_forward.cuh, for all texts of 1, 2, ... letters at once.
    """
    left, right = np.zeros(NO_TOKEN + 1, np.uint32), tokens[:, 1] >> 16
    left[: len(tokens)] = tokens[:, 1] & 0xFFFF  # Any may follow no token.
    last = [np.zeros(1, np.uint16)]
    for length in range(1, most + 1):
        texts = np.arange(4**length)
        found = np.full(4**length, NO_TOKEN, np.uint16)
        for ending, token in _endings_from_longest(spelled, texts, length):
            todo = np.flatnonzero((found == NO_TOKEN) & (token != NO_TOKEN))
            after = right[token[todo]]
            before = last[length - ending][texts[todo] & (4 ** (length - ending) - 1)]
            may = bits[left[before] if ending < length else 0, after // 32] >> after % 32 & 1
            fits = todo[may.astype(np.bool_)]
            found[fits] = token[fits]
        last.append(found)
    return last[most]


def _endings_from_longest(
    spelled: UInt16s, texts: Int64s, length: int
) -> Iterator[tuple[int, UInt16s]]:
    """(letters, the token of so many that each text ends with or NO_TOKEN)."""
    for ending in range(length, 0, -1):
        yield ending, spelled[(4**ending - 4) // 3 + (texts >> 2 * (length - ending))]


def _likely_tokens(last: UInt16s, spelled: UInt16s, tokens: UInt32s, k: int) -> UInt16s:
    """uint16[4**k]: by the last k letters, the last one's bits the lowest, see `Endings.likely`.

    A token of more letters does not end all of these texts, and is none.
    """
    lengths = np.full(NO_TOKEN + 1, NO_TOKEN, np.uint32)
    lengths[: len(tokens)] = tokens[:, 0] & 0xFF
    groups = last.reshape(4**k, -1)
    counts = (groups[:, :, None] == groups[:, None, :]).sum(2) * (lengths[groups] <= k)
    endings = np.arange(4**k)
    likely = np.where(
        counts.any(1), groups[endings, counts.argmax(1)], spelled[endings >> 2 * (k - 1)]
    )
    newest_first = sum((endings >> 2 * i & 3) << 2 * (k - 1 - i) for i in range(k))
    return np.ascontiguousarray(likely[newest_first])
