"""Guesses from a sample whether all rows have one length; then faster kernels make their k-mers.

The kernels (cuda/kmers/equal_rows.cuh) check every row, so a wrong guess costs only time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.kernels.families import Family
from gpu.kernels.job import constant

SAMPLE = 32
MOST = (1 << 32) - 1
ROW_CIRCLE = constant("ROW_CIRCLE")


@dataclass(frozen=True, slots=True)
class KmerRule:
    """The rule for the number of ids of a row that is not circular.

    Attributes:
        k: the letters of a k-mer.
        stride: the letters from one k-mer to the next, at most k.
        keeps_remainder: whether each letter after the last k-mer has its own id.
    """

    k: int
    stride: int
    keeps_remainder: bool

    def kmers(self, length: int) -> int:
        """Return the number of k-mers of a row of `length` letters."""
        return 0 if length < self.k else (length - self.k) // self.stride + 1

    def ids(self, length: int) -> int:
        """Return the number of ids of a row of `length` letters."""
        kmers = self.kmers(length)
        if not self.keeps_remainder:
            return kmers
        return kmers + length - ((kmers - 1) * self.stride + self.k if kmers else 0)


def even_length(offsets: NDArray[np.int64]) -> int:
    """Return the common length of all rows, of which the last may be shorter; 0 if lengths vary.

    Only a sample of the rows is compared. The last row must not be empty.

    Args:
        offsets: int64[B + 1], from 0 on.

    Example: rows of 5, 5 and 2 letters are rows of 5; rows of 5, 5 and 6 vary.
    """
    rows, total = len(offsets) - 1, int(offsets[-1])
    length = int(offsets[1]) if rows else 0
    if not (rows - 1) * length < total <= rows * length:
        return 0
    sample = np.arange(0, rows, -(-rows // SAMPLE))
    return length if np.array_equal(offsets[sample], sample * length) else 0


def even_numbers(rule: KmerRule, offsets: NDArray[np.int64]) -> dict[str, int]:
    """Return the Job's fields for rows of one length; only `row_length` = 0 if lengths vary.

    If k-mers do not overlap and fill every row, all rows together are treated as one row.
    """
    count, total, length = len(offsets) - 1, int(offsets[-1]), even_length(offsets)
    row_ids = rule.ids(length)
    if not row_ids:
        return {"row_length": 0}
    numbers = {"row_length": length, "row_ids": row_ids}
    if rule.k == rule.stride and length % rule.k == 0:
        count, length = 1, total
    last = total - (count - 1) * length
    return numbers | {
        "even_count": count,
        "even_ids": rule.ids(length),
        "even_kmers": rule.kmers(length),
        "even_last_kmers": rule.kmers(last),
        "even_total": (count - 1) * rule.ids(length) + rule.ids(last),
        "even_length": length,
        "even_ids_inverse": MOST // rule.ids(length),
        "even_length_inverse": MOST // length,
    }


def set_even_rows(
    job: np.void, family: Family, flags: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> None:
    """Write the fields of `even_numbers` into a Job; `row_length` is 0 if no kernel supports them.

    No kernels support circular rows or alphabets that do not have four letters.

    Args:
        job: a Job with the fields of the vocabulary.
        family: the family of the vocabulary.
        flags: uint8[B] or longer, row_flags; not read where the Job has none.
        offsets: int64[B + 1], from 0 on.
    """
    job["row_length"] = 0
    wraps = bool(job["wraps"])
    if job["row_flags"]:
        wraps = bool(job["can_wrap"] and (flags[: len(offsets) - 1] & ROW_CIRCLE).any())
    if wraps or not (family.even and job["four_letters"]):
        return
    rule = KmerRule(int(job["kmer_k"]), int(job["kmer_stride"]), bool(job["keeps_remainder"]))
    for name, value in even_numbers(rule, offsets).items():
        job[name] = value
