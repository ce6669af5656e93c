"""Makes the tables of large vocabularies once for all GPU engines of a test process."""

from __future__ import annotations

from collections import OrderedDict

from gpu.kernels.families import TEXT
from gpu.vocabulary.device_tables import DeviceTables, prepare
from vocabularies.model.vocabulary import Vocabulary

LARGE, MOST = 10_000, 6  # Ids that take long, a second or two; vocabularies of some 40 MB each.
_kept: OrderedDict[str, DeviceTables] = OrderedDict()  # Least recently used first.


def prepare_once(vocabulary: Vocabulary, seed: int) -> DeviceTables:
    """Call `device_tables.prepare`; for a large text vocabulary return the tables made before.

    These have the seed of the first call and are read-only.
    """
    if (kept := _kept.get(vocabulary.digest)) is not None:
        _kept.move_to_end(vocabulary.digest)
        return kept
    made = prepare(vocabulary, seed)
    if made.family is TEXT and len(vocabulary) >= LARGE:
        for array in made.arrays.values():
            array.flags.writeable = False
        _kept[vocabulary.digest] = made
        if len(_kept) > MOST:
            _kept.popitem(last=False)
    return made
