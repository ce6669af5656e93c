"""Which token of a text is the last one: tables of cuda/dna_remaining.cuh.

Letters are the four bases, as numbers of two bits. Texts are numbers, the first letter's bits the
lowest, so that the letters before the last j are `text & (4**(m - j) - 1)`, the last j `text >> 2 *
(m - j)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gpu.dna_pairs import Pairs
from gpu.job import constant

__all__ = ["Endings", "endings_of"]

UInt16s = NDArray[np.uint16]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_TOKEN, BEFORE_LETTERS = constant("NO_TOKEN"), constant("BEFORE_LETTERS")
FORWARD_K, MAX_LETTERS = constant("FORWARD_K"), constant("MAX_LETTERS")
LONG_LENGTH = constant("LONG_LENGTH")  # Of tokens that only lists have.
COPIED_K, COPIED_LETTERS = constant("COPIED_K"), constant("COPIED_LETTERS")
LATEST = 16
"""Letters of a text of which the tables know."""
COPIED_TOKENS = 6000
"""Up to so many tokens the tables are small enough to be copied."""
MOST_BEFORE, LAST_LISTED = constant("MOST_BEFORE"), constant("LAST_LISTED")
EITHER, OPEN = constant("EITHER"), constant("OPEN")
MOST_OPENED = 1 << 17
"""Texts that are open; where there are more, no more letters are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """Last tokens by the letters that a text ends with; see dna_remaining.cuh.

    Attributes:
        k: letters that `last` is indexed by.
        levels: how often two letters more are looked at where these leave more than two tokens.
        is_copied: multiprocessors have room for a copy of `last`.
        last: uint32[4**k, 2], what is left of the tokens that end there.
        opened: uint32[..., 4**2, 2], the same by the two letters before, by number.
        short: uint32[...], left class | length << 16 of the last token of each text of 1 .. k - 1
            letters, from (4**length - 4) / 3 on.
        begins: uint32[numbers + 1], where the tokens of each number begin in `listed`.
        listed: uint32[..., 2], tokens that may be the last one, the shortest first.
        keys: uint64[..., 2], the letters of tokens of more than k, the last one's bits the highest.
    """

    k: int
    levels: int
    is_copied: bool
    last: UInt32s
    opened: UInt32s
    short: UInt32s
    begins: UInt32s
    listed: UInt32s
    keys: UInt64s

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """By Job field."""
        return {
            "ending_last": self.last,
            "ending_opened": self.opened,
            "ending_short": self.short,
            "ending_begins": self.begins,
            "ending_listed": self.listed,
            "ending_keys": self.keys,
        }

    def numbers(self) -> dict[str, int]:
        """By Job field."""
        return {"ending_k": self.k, "ending_levels": self.levels}


def endings_of(
    codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs
) -> Endings | None:
    """The tables of tokens with their letters, and with pairs in the order of `ids`.

    Tokens with other letters are among `ids` and not among `codes`. None where there are no codes.
    """
    if not codes:
        return None
    longest = max(map(len, codes))
    is_copied = len(codes) <= COPIED_TOKENS and longest <= COPIED_LETTERS
    k = min(COPIED_K if is_copied else FORWARD_K, 2 + len(codes).bit_length() // 2)
    last_tokens = LastTokens(codes, ids, pairs, k)
    levels, lists = _levels(last_tokens, k)
    return Endings(
        k=k,
        levels=len(levels) - 1,
        is_copied=is_copied,
        last=levels[0],
        opened=np.concatenate([*levels[1:], np.zeros((1, 2), np.uint32)]),
        short=np.concatenate([last_tokens.of_whole(length) for length in range(1, k)]),
        begins=np.cumsum([0, *chain(*(counts for counts, _ in lists))], dtype=np.uint32),
        listed=np.concatenate([items for _, items in lists]),
        keys=last_tokens.keys,
    )


def _levels(last_tokens: LastTokens, k: int) -> tuple[list[UInt32s], list[tuple[Int64s, UInt32s]]]:
    """What k letters leave, two more where these are open, and so on; what is listed for these."""
    texts, letters, count, num_listed = np.arange(4**k), k, 0, 0
    levels, lists = [], []
    while True:
        level = last_tokens.remaining(texts, letters)
        levels.append(level)
        is_open = level[:, 1] >= OPEN
        texts, opened = texts[is_open], int(is_open.sum())
        level[is_open, 0] = 4**BEFORE_LETTERS * (count + np.arange(opened))
        counts, items = last_tokens.listed(texts, letters)
        level[is_open, 1] |= (num_listed + np.cumsum(counts) - counts).astype(np.uint32)
        lists.append((counts, items))
        num_listed += len(items)
        count += opened
        if min(k + MOST_BEFORE, LONG_LENGTH - 1) < letters + BEFORE_LETTERS or count > MOST_OPENED:
            return levels, lists
        texts = (texts[:, None] << 2 * BEFORE_LETTERS | np.arange(4**BEFORE_LETTERS)).ravel()
        letters += BEFORE_LETTERS


class LastTokens:
    """Which tokens may be the last ones of texts with a certain end.

    A token that ends such a text may be the last one if it may follow one that may be the last one
    of the letters before it, which may have more letters than these. So more tokens may be left
    than really are, and never fewer.

    Args:
        codes, ids, pairs: as in `endings_of`.
        k: letters of tokens that need no key.
    """

    DEEP = 8
    """Letters of the longest ends for which all is kept; longer ones are taken for these."""

    def __init__(
        self, codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs, k: int
    ) -> None:
        self.bits = pairs.bits
        self.left, self.right, self.key = (np.zeros(NO_TOKEN + 1, np.uint32) for _ in range(3))
        places = np.fromiter(ids.values(), np.int64)
        self.left[places], self.right[places] = pairs.left, pairs.right
        self.ids = np.array([ids[token] for token in codes], np.uint16)
        self.lengths = np.array([len(letters) for letters in codes.values()])
        self.length = np.zeros(NO_TOKEN + 1, np.int64)
        self.length[self.ids] = self.lengths
        self.letters = np.array([_latest(letters, LATEST) for letters in codes.values()], np.uint64)
        keys = [_latest(letters, MAX_LETTERS) for letters in codes.values() if len(letters) > k]
        self.key[self.ids[self.lengths > k]] = 1 + np.arange(len(keys))
        self.keys = np.array([(key >> 64, key & (1 << 64) - 1) for key in keys], np.uint64)
        self.keys = self.keys.reshape(-1, 2)
        self.spelled = [self._spelled(length) for length in range(LATEST)]
        """By length: the texts of all tokens, in order, and their ids."""
        self.followers = [self._followers(length) for length in range(self.DEEP + 1)]
        self.may_be: list[Bools] = [np.zeros((1, 0), np.bool_)]
        """bool[4**m, m]: whether the token of the last 1 .. m letters may be the last one."""
        for length in range(1, self.DEEP + 1):
            self.may_be.append(self.of(np.arange(4**length), length))

    def _last(self, length: int, which: Bools) -> tuple[Int64s, UInt16s]:
        """The last `length` letters of some tokens, in order, and their ids."""
        texts = (self.letters[which] >> np.uint64(2 * (LATEST - length))).astype(np.int64)
        order = np.argsort(texts, kind="stable")
        return texts[order], self.ids[which][order]

    def _spelled(self, length: int) -> tuple[Int64s, UInt16s]:
        texts, ids = self._last(length, self.lengths == length)
        return np.append(-1, texts), np.append(np.uint16(NO_TOKEN), ids)

    def _followers(self, length: int) -> tuple[UInt32s, UInt32s]:
        """By last letters of longer tokens, the bits of what may follow one of these.

        uint32[4**length] numbers of rows, uint32[rows, words]; row 0 is empty.
        """
        texts, ids = self._last(length, self.lengths > length)
        ends, first = np.unique(texts, return_index=True)
        numbers = np.zeros(4**length, np.uint32)
        numbers[ends] = 1 + np.arange(len(ends))
        rows = np.zeros((1 + len(ends), self.bits.shape[1]), np.uint32)
        if len(ends):
            np.bitwise_or.reduceat(self.bits[self.left[ids]], first, axis=0, out=rows[1:])
        return numbers, rows

    def ending(self, texts: Int64s, length: int | Int64s, letters: int) -> UInt16s:
        """The token that texts of so many letters have as their last `length` ones; NO_TOKEN."""
        if isinstance(length, int):
            ends, (spelled, ids) = texts >> 2 * (letters - length), self.spelled[length]
            place = np.searchsorted(spelled, ends, side="right") - 1
            return np.where(spelled[place] == ends, ids[place], NO_TOKEN).astype(np.uint16)
        found = np.full(len(texts), NO_TOKEN, np.uint16)
        for each in range(1, letters + 1):
            found[length == each] = self.ending(texts[length == each], each, letters)
        return found

    def follows(self, before: UInt16s, after: UInt16s) -> Bools:
        """Whether tokens may stand behind others, or behind nothing where these are NO_TOKEN."""
        return _bits_at(self.bits, self.left[before], self.right[after])

    def of(self, texts: Int64s, letters: int) -> Bools:
        """bool[texts, letters]: as `may_be`, of texts of so many letters."""
        found = np.zeros((len(texts), letters), np.bool_)
        for length in range(1, letters + 1):
            token = self.ending(texts, length, letters)
            is_token = np.flatnonzero(token != NO_TOKEN)
            before = texts[is_token] & (4 ** (letters - length) - 1)
            may = self._may_follow(before, letters - length, token[is_token])
            found[is_token, length - 1] = may
        return found

    def _may_follow(self, before: Int64s, letters: int, token: UInt16s) -> Bools:
        """Whether tokens may be last ones behind texts that end with so many letters."""
        if letters == 0:
            return np.ones(len(before), np.bool_)
        deep = min(letters, self.DEEP)
        before = before >> 2 * (letters - deep)
        numbers, rows = self.followers[deep]
        found = _bits_at(rows, numbers[before], self.right[token])
        for length in range(1, deep + 1):
            todo = np.flatnonzero(~found & self.may_be[deep][before, length - 1])
            last = self.ending(before[todo], length, deep)
            found[todo] = self.follows(last, token[todo])
        return found

    def remaining(self, texts: Int64s, letters: int) -> UInt32s:
        """uint32[texts, 2]: what texts of so many letters leave; see dna_remaining.cuh."""
        may_be = self.of(texts, letters)
        count, made = may_be.sum(1), np.zeros((len(texts), 2), np.uint32)
        longest = letters - may_be[:, ::-1].argmax(1)
        shortest = 1 + may_be.argmax(1)  # Of letters that no text has, any.
        first, second = (self.ending(texts, length, letters) for length in (longest, shortest))
        made[:, 0] = self.left[first] | self.right[first] << 16
        made[:, 1] = self.left[second] | longest << 16 | shortest << 20
        made[count == 2, 1] |= EITHER
        is_longer = np.isin(texts, self._last(letters, self.lengths > letters)[0])
        made[(count > 2) | is_longer] = 0, OPEN
        return made

    def listed(self, texts: Int64s, letters: int) -> tuple[Int64s, UInt32s]:
        """How many tokens may be last ones of each text, and all of them, the shortest first.

        uint32[..., 2]: left class | right class << 16, length | number of the key + 1 << 8 where
        there are more letters than the text has, and LAST_LISTED for the last one.
        """
        text, length = np.nonzero(self.of(texts, letters))
        token = self.ending(texts[text], length + 1, letters)
        ends, longer = self._last(letters, self.lengths > letters)
        first, behind = (np.searchsorted(ends, texts, side) for side in ("left", "right"))
        count = behind - first
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)
        text = np.concatenate([text, np.repeat(np.arange(len(texts)), count)])
        token = np.concatenate([token, longer[place]])
        order = np.lexsort((self.length[token], text))
        text, token = text[order], token[order]
        key = np.where(self.length[token] > letters, self.key[token], 0)
        items = self.left[token] | self.right[token] << 16, self.length[token] | key << 8
        items[1][np.cumsum(np.bincount(text, minlength=len(texts))) - 1] |= LAST_LISTED
        return np.bincount(text, minlength=len(texts)), np.stack(items, axis=1).astype(np.uint32)

    def of_whole(self, letters: int) -> UInt32s:
        """uint32[4**letters]: left class | length << 16 of the last token of each whole text."""
        last, lengths = [np.full(1, NO_TOKEN, np.uint16)], np.ones(1, np.uint32)
        for m in range(1, letters + 1):
            last.append(np.full(4**m, NO_TOKEN, np.uint16))
            lengths = np.ones(4**m, np.uint32)
            for length in range(m, 0, -1):
                texts = np.flatnonzero(last[m] == NO_TOKEN)
                token = self.ending(texts, length, m)
                before = last[m - length][texts & (4 ** (m - length) - 1)]
                fits = (token != NO_TOKEN) & self.follows(before, token)
                last[m][texts[fits]], lengths[texts[fits]] = token[fits], length
        return (self.left[last[letters]] | lengths << 16).astype(np.uint32)


def _latest(letters: list[int], most: int) -> int:
    """The latest letters of a token, the last one's bits the highest of `most` letters."""
    return sum(code << 2 * (most - 1 - i) for i, code in enumerate(letters[: -most - 1 : -1]))


def _bits_at(rows: UInt32s, row: UInt32s, bit: UInt32s) -> Bools:
    return (rows[row, bit // 32] >> bit % 32 & 1).astype(np.bool_)
