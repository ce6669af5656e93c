"""Documents that were read from a file, their rows of ids, and the records that were refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Reject(NamedTuple):
    """A record that has no ids.

    Attributes:
        place: its place in its file, as in `Documents`.
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
    """Neighbouring documents of one file.

    A place is a position from which a reader can start again: the byte of the unpacked file at
        which a line
    begins, or the number of a row or a record.

    Attributes:
        data: uint8[N], their texts joined.
        offsets: int64[B + 1], where each begins in `data`.
        places: int64[B], the place of each, rising.
        end: the place behind the last one.
        num_bytes: the bytes of the file that they were read from, for the progress.
        rejects: the records between them without a text, by place.
        digests: SHA-256 of blocks of the file by their number; see `inputs.InputDigest`.
        masks: uint8[N] for each byte of `data`, 1 where a model learns it; None: everywhere.
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
    """Rows of ids, and the place at which a reader continues behind each.

    Attributes:
        ids: uint16[T] or int32[T], the rows joined.
        offsets: int64[R + 1], where each begins.
        next_inputs: int64[R], the number of the file that holds the first document of which ids
            follow the row.
        next_places: int64[R], that document's place.
        next_skips: int64[R], how many ids, or rows, of it are in this row and those before.
        num_documents: int64[R + 1], the documents that ended before each row.
        mask: uint8[T], 1 where a model learns the id; None: there is no mask.
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
        """Return the rows from `begin` to `end`; nothing but offsets is copied."""
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
