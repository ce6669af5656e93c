"""K-mers of rows of one length, by all that a sample tells; cuda/kmers/equal_rows.cuh serves them.

Knows no device. The kernels look at every row, so that a sample which deceives costs
time and nothing else.
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
    """Which ids a row of letters has that does not wrap.

    Attributes:
        k: letters of a k-mer.
        stride: letters from one k-mer to the next, at most k.
        keeps_remainder: letters that no k-mer covers have ids of their own.
    """

    k: int
    stride: int
    keeps_remainder: bool

    def kmers(self, length: int) -> int:
        """K-mers of a row of so many letters."""
        return 0 if length < self.k else (length - self.k) // self.stride + 1

    def ids(self, length: int) -> int:
        """K-mers and, where these are kept, the letters behind them."""
        kmers = self.kmers(length)
        if not self.keeps_remainder:
            return kmers
        return kmers + length - ((kmers - 1) * self.stride + self.k if kmers else 0)


def even_length(offsets: NDArray[np.int64]) -> int:
    """The length of all rows but the last one, which may be shorter and not empty; 0: they vary.

    Args:
        offsets: int64[B + 1], where rows begin, from 0 on, and the end.

    Example: rows of 5, 5 and 2 letters are rows of 5; rows of 5, 5 and 6 vary.
    """
    rows, total = len(offsets) - 1, int(offsets[-1])
    length = int(offsets[1]) if rows else 0
    if not (rows - 1) * length < total <= rows * length:
        return 0
    sample = np.arange(0, rows, -(-rows // SAMPLE))
    return length if np.array_equal(offsets[sample], sample * length) else 0


def even_numbers(rule: KmerRule, offsets: NDArray[np.int64]) -> dict[str, int]:
    """The fields of the Job that say how long rows are; `row_length` alone, 0, where that varies.

    K-mers side by side that fill every row are those of one row.
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
    """Put the numbers into a Job; `row_length` is 0 where no kernel is for such rows.

    None is for circles, nor for letters that are not four.

    Args:
        job: with the fields of a vocabulary of the family.
        family: of the vocabulary.
        flags: uint8[B] or longer, row_flags; not read where the job has none.
        offsets: int64[B + 1], where rows begin, from 0 on, and the end.
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
