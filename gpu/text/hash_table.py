"""Places keys in hash tables, by linear probing over buckets.

cuda/text/lookup/token_tables.cuh and cuda/text/merge/pair_ranks.cuh read the tables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.text.hash_functions import mixed

UInt32s = NDArray[np.uint32]
MAX_PROBES = 64  # More probes would make all look-ups slow.


def _bucket_of(hashes: UInt32s, num_buckets: int) -> NDArray[np.int64]:
    return (mixed(hashes) >> np.uint32(32 - int(np.log2(num_buckets)))).astype(np.int64)


def fill(hashes: UInt32s, num_buckets: int, per_bucket: int) -> NDArray[np.int64]:
    """Return int64[n]: the slot of each key; buckets are filled from their first slot on.

    Raises:
        NotCovered: a key needs more than MAX_PROBES probes.
    """
    slots = np.empty(len(hashes), np.int64)
    used = np.zeros(num_buckets, np.int8)
    waiting = np.arange(len(hashes))
    buckets = _bucket_of(hashes, num_buckets)
    for _ in range(MAX_PROBES):
        if not len(waiting):
            return slots
        order = np.argsort(buckets[waiting], kind="stable")
        waiting = waiting[order]
        mine = buckets[waiting]
        first = np.searchsorted(mine, mine)
        number = used[mine] + np.arange(len(mine)) - first
        fits = number < per_bucket
        slots[waiting[fits]] = mine[fits] * per_bucket + number[fits]
        np.add.at(used, mine[fits], 1)
        waiting = waiting[~fits]
        buckets[waiting] = (buckets[waiting] + 1) % num_buckets
    raise NotCovered("too many tokens or pairs have the same hash")


def num_buckets(num_keys: int, per_bucket: int, load: float) -> int:
    """Return a power of two so that at most the share `load` of the slots is used."""
    return 1 << max(1, int(np.ceil(np.log2(max(1, num_keys) / load / per_bucket))))
