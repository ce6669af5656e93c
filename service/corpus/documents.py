"""Defines documents read from a file, their rows of ids, and rejected records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Reject(NamedTuple):
    """A record that was rejected and has no ids.

    Attributes:
        place: the place of the record in its file, as in `Documents`.
        code: a word for programs, such as "invalid_json".
        message: a sentence for people.
        where: the place inside the text, such as "byte 17", or "".
    """

    place: int
    code: str
    message: str
    where: str = ""


@dataclass(slots=True)
class Documents:
    """Consecutive documents of one file.

    A place is a position from which a reader can continue: the byte of the decompressed file at
    which a line begins, or the number of a row or a record.

    Attributes:
        data: uint8[N], the texts, joined.
        offsets: int64[B + 1], where each text begins in `data`.
        places: int64[B], the place of each document, in ascending order.
        end: the place after the last document.
        num_bytes: the bytes of the file from which they were read, for the progress.
        rejects: the rejected records between them, ordered by place.
        digests: the SHA-256 of blocks of the file by block number; see `inputs.InputDigest`.
        masks: uint8[N], 1 for each byte of `data` that a model learns; None: all bytes.
    """

    data: NDArray[np.uint8]
    offsets: Int64s
    places: Int64s
    end: int
    num_bytes: int = 0
    rejects: list[Reject] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)
    masks: NDArray[np.uint8] | None = None


@dataclass(slots=True)
class Rows:
    """Rows of ids, and for each row the place at which a reader continues after it.

    Attributes:
        ids: uint16[T] or int32[T], the rows, joined.
        offsets: int64[R + 1], where each begins.
        next_inputs: int64[R], the number of the file of the next document, which is the first one
            with ids after the row.
        next_places: int64[R], the place of the next document.
        next_skips: int64[R], how many ids, or rows, of the next document are in this row and
            earlier ones.
        num_documents: int64[R + 1], the number of documents that end before each row.
        mask: uint8[T], 1 for each id that a model learns; None: no mask.
    """

    ids: NDArray[np.integer[Any]]
    offsets: Int64s
    next_inputs: Int64s
    next_places: Int64s
    next_skips: Int64s
    num_documents: Int64s
    mask: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, begin: int, end: int) -> Rows:
        """Return the rows from `begin` to `end`; only offsets are copied."""
        first, last = self.offsets[begin], self.offsets[end]
        return Rows(
            self.ids[first:last],
            self.offsets[begin : end + 1] - first,
            self.next_inputs[begin:end],
            self.next_places[begin:end],
            self.next_skips[begin:end],
            self.num_documents[begin : end + 1] - self.num_documents[begin],
            None if self.mask is None else self.mask[first:last],
        )
