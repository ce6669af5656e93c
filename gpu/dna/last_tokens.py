"""Computes which tokens may be the last token of a text that ends with given letters.

Letters are the four bases, as numbers of two bits. A text of m letters is a number in which the
first letter has the lowest bits. So the letters before the last j are `text & (4**(m - j) - 1)`,
and the last j letters are `text >> 2 * (m - j)`. The proof is in docs/internals/dna-bpe.md, *What
letters leave*.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.dna.compatible_pairs import Pairs
from gpu.kernels.job import constant

UInt16s = NDArray[np.uint16]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_TOKEN, MAX_LETTERS = constant("NO_TOKEN"), constant("MAX_LETTERS")
LONG_LENGTH = constant("LONG_LENGTH")  # The length of tokens that only lists contain.
LAST_LISTED = constant("LAST_LISTED")
EITHER, OPEN = constant("EITHER"), constant("OPEN")
LATEST = 16
"""The largest number of letters at the end of a text that the tables use."""
DENSE = 8
"""For ends of up to this length, all texts are computed; longer ends on request."""


class LastTokens:
    """The tokens that may be the last one of a text, by its end.

    A token may be the last one of a text if it is compatible with a possible last token of the
    letters before it, or of a longer text that ends with these letters. So the result may contain
    too many tokens, but never too few.

    Args:
        codes, ids, pairs: as in `endings_of`.
        k: the largest number of letters of tokens that need no key.
        deep: the largest number of letters before a token that are used, DENSE or more.
    """

    def __init__(
        self,
        codes: dict[bytes, list[int]],
        ids: dict[bytes, int],
        pairs: Pairs,
        k: int,
        deep: int,
    ) -> None:
        self.deep = deep
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
        self.followers = [self._followers(length) for length in range(min(deep + 1, LATEST))]
        self.may_be: dict[int, tuple[Int64s, Bools]] = {}
        """By m: texts of m letters, in order, and bool[texts, m], whether the token of the last
        1 .. m letters may be the last one."""
        for length in range(DENSE + 1):
            texts = np.arange(4**length)
            self.may_be[length] = texts, self._of(texts, length)

    def _last(self, length: int, which: Bools) -> tuple[Int64s, UInt16s]:
        """Return the last `length` letters of the tokens in `which`, sorted, and their ids."""
        texts = (self.letters[which] >> np.uint64(2 * (LATEST - length))).astype(np.int64)
        order = np.argsort(texts, kind="stable")
        return texts[order], self.ids[which][order]

    def _spelled(self, length: int) -> tuple[Int64s, UInt16s]:
        texts, ids = self._last(length, self.lengths == length)
        return np.append(-1, texts), np.append(np.uint16(NO_TOKEN), ids)

    def _followers(self, length: int) -> tuple[Int64s, UInt32s]:
        """Return the ends of longer tokens, sorted, and the bits of the tokens that may follow.

        int64[rows] and uint32[rows, words]; row 0 is for no end and empty.
        """
        texts, ids = self._last(length, self.lengths > length)
        ends, first = np.unique(texts, return_index=True)
        rows = np.zeros((1 + len(ends), self.bits.shape[1]), np.uint32)
        if len(ends):
            np.bitwise_or.reduceat(self.bits[self.left[ids]], first, axis=0, out=rows[1:])
        return np.append(-1, ends), rows

    def ending(self, texts: Int64s, length: int | Int64s, letters: int) -> UInt16s:
        """Return the token that consists of the last `length` letters of each text, or NO_TOKEN."""
        if isinstance(length, int):
            ends, (spelled, ids) = texts >> 2 * (letters - length), self.spelled[length]
            place = np.searchsorted(spelled, ends, side="right") - 1
            return np.where(spelled[place] == ends, ids[place], NO_TOKEN).astype(np.uint16)
        found = np.full(len(texts), NO_TOKEN, np.uint16)
        for each in range(1, letters + 1):
            found[length == each] = self.ending(texts[length == each], each, letters)
        return found

    def follows(self, before: UInt16s, after: UInt16s) -> Bools:
        """Return whether tokens may follow others, or begin a text where these are NO_TOKEN."""
        return _bits_at(self.bits, self.left[before], self.right[after])

    def of(self, texts: Int64s, letters: int) -> Bools:
        """Return bool[texts, letters], as in `may_be`, for texts of `letters` letters."""
        for length in range(DENSE + 1, min(letters, self.deep + 1)):
            begins = np.unique(texts & (4**length - 1))
            self.may_be[length] = begins, self._of(begins, length)
        return self._of(texts, letters)

    def _of(self, texts: Int64s, letters: int) -> Bools:
        """Compute the rows of `of`; `may_be` must hold those of all shorter beginnings."""
        found = np.zeros((len(texts), letters), np.bool_)
        for length in range(1, letters + 1):
            token = self.ending(texts, length, letters)
            is_token = np.flatnonzero(token != NO_TOKEN)
            before = texts[is_token] & (4 ** (letters - length) - 1)
            may = self._may_follow(before, letters - length, token[is_token])
            found[is_token, length - 1] = may
        return found

    def _may_follow(self, before: Int64s, letters: int, token: UInt16s) -> Bools:
        """Return whether tokens may be the last ones after texts that end with these letters."""
        if letters == 0:
            return np.ones(len(before), np.bool_)
        if letters > self.deep:
            before, letters = before >> 2 * (letters - self.deep), self.deep
        ends, rows = self.followers[letters]
        row = np.searchsorted(ends, before, side="right") - 1
        found = _bits_at(rows, np.where(ends[row] == before, row, 0), self.right[token])
        texts, may_be = self.may_be[letters]
        place = np.searchsorted(texts, before)
        for length in range(1, letters + 1):
            todo = np.flatnonzero(~found & may_be[place, length - 1])
            last = self.ending(before[todo], length, letters)
            found[todo] = self.follows(last, token[todo])
        return found

    def remaining(self, texts: Int64s, letters: int, may_be: Bools) -> UInt32s:
        """Return uint32[texts, 2]: the possible last tokens of each text; see suffix_state.cuh."""
        count, made = may_be.sum(1), np.zeros((len(texts), 2), np.uint32)
        longest = letters - may_be[:, ::-1].argmax(1)
        shortest = 1 + may_be.argmax(1)  # Any token, for letters with which no text ends.
        first, second = (self.ending(texts, length, letters) for length in (longest, shortest))
        made[:, 0] = self.left[first] | self.right[first] << 16
        made[:, 1] = self.left[second] | longest << 16 | shortest << 20
        made[count == 2, 1] |= EITHER
        is_longer = np.isin(texts, self._last(letters, self.lengths > letters)[0])
        is_long = (count > 0) & (longest >= LONG_LENGTH)
        made[(count > 2) | is_longer | is_long] = 0, OPEN
        return made

    def listed(self, texts: Int64s, letters: int, may_be: Bools) -> tuple[Int64s, UInt32s]:
        """Return the number of possible last tokens of each text, and these, shortest first.

        The tokens are uint32[..., 2]: left class | right class << 16, and length | number of the
        key + 1 << 8 if the token is longer than the text. LAST_LISTED marks the last token of a
        text. A single token is listed twice, because kernels test all tokens but the last one, and
        at least one.
        """
        text, length = np.nonzero(may_be)
        token = self.ending(texts[text], length + 1, letters)
        ends, longer = self._last(letters, self.lengths > letters)
        first, behind = (np.searchsorted(ends, texts, side) for side in ("left", "right"))
        count = behind - first
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)
        text = np.concatenate([text, np.repeat(np.arange(len(texts)), count)])
        token = np.concatenate([token, longer[place]])
        order = np.lexsort((self.length[token], text))
        text, token = text[order], token[order]
        times = np.where(np.bincount(text, minlength=len(texts))[text] == 1, 2, 1)
        text, token = np.repeat(text, times), np.repeat(token, times)
        key = np.where(self.length[token] > letters, self.key[token], 0)
        items = self.left[token] | self.right[token] << 16, self.length[token] | key << 8
        items[1][np.cumsum(np.bincount(text, minlength=len(texts))) - 1] |= LAST_LISTED
        return np.bincount(text, minlength=len(texts)), np.stack(items, axis=1).astype(np.uint32)

    def of_whole(self, letters: int) -> UInt32s:
        """Return uint32[4**letters]: left class | length << 16 of the last token of each text."""
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
    """Return the last letters of a token, the last one's bits the highest of `most` letters."""
    return sum(code << 2 * (most - 1 - i) for i, code in enumerate(letters[: -most - 1 : -1]))


def _bits_at(rows: UInt32s, row: UInt32s, bit: UInt32s) -> Bools:
    return (rows[row, bit // 32] >> bit % 32 & 1).astype(np.bool_)
