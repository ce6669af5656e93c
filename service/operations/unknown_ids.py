"""Detects answers with many ids of the unknown token, for example for DNA in lower case."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batching.work import Result
from vocabularies.batch.batch import Encoded
from vocabularies.model.vocabulary import Vocabulary

WARNED_SHARE = 0.2  # Sequences with some N are below it, those in an unknown case above.
MAX_STREAM_IDS = 1 << 16  # Only the first ids of a stream are counted, before its head is sent.


def find_unknown_share(vocabulary: Vocabulary, ids: NDArray[np.integer[Any]]) -> float | None:
    """Return the share of unknown ids among a sequence's own ids, if it is at least WARNED_SHARE.

    The result is None for a smaller share, and for text vocabularies, whose ids are not counted.
    """
    if vocabulary.unknown_id is None:
        return None
    num_unknown = int(np.count_nonzero(ids == vocabulary.unknown_id))
    if not num_unknown:
        return None
    added = {*vocabulary.prefix, *vocabulary.suffix} - {vocabulary.unknown_id}
    num_added = sum(int(np.count_nonzero(ids == each)) for each in added)
    share = num_unknown / (len(ids) - num_added)
    return round(share, 3) if share >= WARNED_SHARE else None


def find_share_of_result(
    vocabulary: Vocabulary, result: Result[Encoded], most: int | None = None
) -> float | None:
    """Return `find_unknown_share` for the ids of a request.

    Args:
        vocabulary: the vocabulary.
        result: the result that contains the request.
        most: the number of ids to count from the start; None: all.
    """
    if vocabulary.unknown_id is None:
        return None
    begin, end = int(result.offsets[result.begin]), int(result.offsets[result.end])
    if most is not None:
        end = min(end, begin + most)
    return find_unknown_share(vocabulary, result.output.ids[begin:end])


def make_warning(unknown_share: float | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of a binary answer that warn of unknown ids; [] if the share is None."""
    if unknown_share is None:
        return []
    return [
        (b"x-warptok-warning", b"unknown-ids"),
        (b"x-warptok-unknown-share", str(unknown_share).encode()),
    ]
