"""Crops sequences and substitutes their letters at random, from a seed, the same on every machine.

A random number depends only on the seed, the number of the row and the position in the row, not on
the batch, the order or the engine. gpu/cuda/batch/augment_rows.cuh does the same on a device. This
module does not depend on vocabularies.

Philox 4x32 with ten rounds gives four words of 32 bits for the key (seed % 2^32, seed // 2^32)
and the counter (number, purpose, row % 2^32, row // 2^32). With purpose 0 and number 0, words 0 and
1 choose the begin of a row's crop: (word 1 * 2^32 + word 0) * choices // 2^64. With purpose 1, word
p % 4 of number p // 4 is used for letter p of the original row: the letter is substituted if word
// 2^8 is below the rate * 2^24, and (word % 2^8) * 3 // 2^8 chooses one of the three letters that
follow it in ACGTACG.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import index

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

ROUNDS = 10
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
CROP, LETTER = 0, 1
RATE_BITS = 24
LAST_ASCII = 0x7F
# The number of counters that are computed at once, few enough for the CPU's caches.
BLOCK = 1 << 13


@dataclass(frozen=True, slots=True)
class Augmentation:
    """The random changes to each row: first substitutions, then the crop.

    Attributes:
        seed: the seed, 0 .. 2^64 - 1.
        crop_letters: the length to which longer rows are cropped, in letters; None: rows are not
            cropped.
        substitution_rate: the probability, 0 to 1, with which a letter A, C, G or T, in either
            case, is replaced by another one of them; other letters do not change.
        first_row: the number of the first row in the whole data set; with it, a part of the data
            set is changed in the same way as the whole.

    Raises:
        TypeError: a field is not a number of its annotated type.
        ValueError: a field is out of range.
    """

    seed: int
    crop_letters: int | None = None
    substitution_rate: float = 0.0
    first_row: int = 0

    def __post_init__(self) -> None:
        for name in ("seed", "crop_letters", "first_row"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else index(value))
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed is {self.seed}; it must be 0 to 2^64 - 1")
        if self.crop_letters is not None and self.crop_letters < 1:
            raise ValueError(f"crop_letters is {self.crop_letters}; it must be at least 1")
        if not 0 <= self.substitution_rate <= 1:
            raise ValueError(f"substitution_rate is {self.substitution_rate}; it must be 0 to 1")
        if not 0 <= self.first_row < 1 << 63:
            raise ValueError(f"first_row is {self.first_row}; it must be 0 to 2^63 - 1")

    @property
    def rate(self) -> int:
        """The substitution rate in units of 2^-24."""
        return round(self.substitution_rate * (1 << RATE_BITS))

    def sizes(self, sizes: Int64s) -> Int64s:
        """Return the length of each row after the crop, int64[B], from its length before."""
        return sizes if self.crop_letters is None else np.minimum(sizes, self.crop_letters)


def philox(seed: int, counters: UInt64s) -> UInt64s:
    """Compute four random 32-bit words for each counter; both are uint64[..., 4].

    Source: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011.

    Example: philox(0, zeros) is 0x6627E8D5 0xE169C58D 0xBC57AC4C 0x9B00DBD8.
    """
    a, b, c, d = (counters[..., i].astype(np.uint64) for i in range(4))
    low, high = np.uint64(seed & int(LOW)), np.uint64(seed >> 32)
    for _ in range(ROUNDS):
        a *= MULTIPLIERS[0]
        c *= MULTIPLIERS[1]
        b ^= c >> HALF
        b ^= low
        d ^= a >> HALF
        d ^= high
        c &= LOW
        a &= LOW
        a, b, c, d = b, c, d, a
        low, high = low + STEPS[0] & LOW, high + STEPS[1] & LOW
    return np.stack([a, b, c, d], axis=-1)


def augment(data: Bytes, offsets: Int64s, augmentation: Augmentation) -> tuple[Bytes, Int64s]:
    """Augment rows, uint8[N] with int64[B + 1] offsets; return the new rows and their offsets.

    Example: a row of 9 letters and crop_letters 4 gives one of its six stretches of 4 letters.
    """
    sizes = np.diff(offsets)
    rows = np.uint64(augmentation.first_row) + np.arange(len(sizes), dtype=np.uint64)
    letters = data
    if augmentation.rate:
        letters = _substituted(data, offsets, rows, augmentation)
    kept = augmentation.sizes(sizes)
    words = _words(augmentation.seed, np.zeros_like(rows), CROP, rows)
    choices = (sizes - kept + 1).astype(np.uint64)
    # The upper half of a product of 64 and 32 bits.
    first = ((words[:, 0] * choices >> HALF) + words[:, 1] * choices) >> HALF
    return letters[
        ragged_indices(offsets[:-1] + first.astype(np.int64), kept)
    ], offsets_from_lengths(kept)


class NotASequence(ValueError):
    """A row has a character outside of ASCII, which a crop could split.

    Attributes:
        row: the number of the row in its batch.
    """

    def __init__(self, row: int) -> None:
        super().__init__("a sequence has ASCII letters")
        self.row = row


def augment_batch(batch: Batch, augmentation: Augmentation) -> Batch:
    """Return a batch with the augmented rows and the same options.

    Raises:
        NotASequence: a row is not ASCII.
    """
    begin, end = batch.offsets[0], batch.offsets[-1]
    data, offsets = batch.data[begin:end], batch.offsets - begin
    beyond = np.flatnonzero(data > LAST_ASCII)
    if len(beyond):
        raise NotASequence(int(np.searchsorted(offsets, beyond[0], side="right")) - 1)
    data, offsets = augment(data, offsets, augmentation)
    augmented = Batch(data=data, offsets=offsets, options=batch.options, id_dtype=batch.id_dtype)
    augmented.should_continue = batch.should_continue
    return augmented


class StreamAugmenter:
    """Augments the batches of a stream; rows are numbered across batches.

    Args:
        augmentation: the changes; `first_row` is the number of the stream's first row.

    Attributes:
        num_rows: the number of rows augmented so far.
    """

    def __init__(self, augmentation: Augmentation) -> None:
        self._augmentation = augmentation
        self.num_rows = 0

    def augment(self, batch: Batch) -> Batch:
        """Return the stream's next batch with its rows augmented.

        Raises:
            NotASequence: a row is not ASCII; the error has its number in the stream.
            ValueError: the number of a row is too large.
        """
        begin = self.num_rows
        changes = replace(self._augmentation, first_row=self._augmentation.first_row + begin)
        self.num_rows += len(batch)
        try:
            return augment_batch(batch, changes)
        except NotASequence as error:
            raise NotASequence(begin + error.row) from None


def _words(seed: int, numbers: UInt64s, purpose: int, rows: UInt64s) -> UInt64s:
    counters = np.stack(
        [numbers & LOW, np.full_like(numbers, purpose), rows & LOW, rows >> HALF], axis=-1
    )
    return philox(seed, counters)


def _substituted(data: Bytes, offsets: Int64s, rows: UInt64s, augmentation: Augmentation) -> Bytes:
    """Return the letters of the rows after the substitutions."""
    word = _letter_words(augmentation.seed, np.diff(offsets), rows)
    letters = np.frombuffer(b"ACGT", np.uint8)
    code = np.full(256, 4, np.uint8)
    code[letters] = code[letters | 0x20] = np.arange(4)
    own = code[data]
    places = np.flatnonzero((word >> np.uint32(8) < np.uint32(augmentation.rate)) & (own < 4))
    steps = (word[places] & np.uint32(0xFF)) * np.uint32(3) >> np.uint32(8)
    others = (own[places] + 1 + steps) % 4
    changed = data.copy()
    changed[places] = letters[others] | data[places] & 0x20
    return changed


def _letter_words(seed: int, sizes: Int64s, rows: UInt64s) -> UInt32s:
    """Return a random 32-bit word for each letter of all rows, uint32[N].

    `philox` computes the words of four letters from one counter, so each counter is used once.
    """
    num_groups = -(-sizes // 4)
    numbers = ragged_indices(np.zeros_like(sizes), num_groups).view(np.uint64)
    of_row = np.repeat(rows, num_groups)
    words = np.empty((len(numbers), 4), np.uint32)
    for begin in range(0, len(numbers), BLOCK):
        block = slice(begin, begin + BLOCK)
        words[block] = _words(seed, numbers[block], LETTER, of_row[block])
    if len(sizes) == 1 or not (sizes % 4).any():
        return words.reshape(-1)[: int(sizes.sum())]
    firsts = 4 * offsets_from_lengths(num_groups)[:-1]
    return words.reshape(-1)[ragged_indices(firsts, sizes)]
