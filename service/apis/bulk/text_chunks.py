"""Cuts texts into chunks that have the same ids as the whole, and encodes them while reading.

This works for vocabularies in which each character is one id. A chunk is encoded while the next one
arrives, and is small enough to stay in the processor's cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.batching.work import Result
from service.core.errors import RowRefused
from service.http.body.request_body import RequestBody
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.model.tables import character_table
from vocabularies.model.vocabulary import Vocabulary

FIRST_CONTINUATION = 0x80  # UTF-8 continuation bytes are 0x80 to 0xBF.
LAST_CONTINUATION = 0xBF
MAX_STEPS = 64  # Maximum number of prefixes that are skipped to find a cut.
CHUNK_BYTES = 1 << 21  # The size of a chunk.


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts texts for one vocabulary, but never inside a character or a special token.

    Attributes:
        prefixes: all proper prefixes of special tokens, since a text that ends with one may
            continue as the token. They are sorted by length, longest first, so that the longest
            match decides the cut. They are in lower case, as is the compared text, since a
            normalizer may change the case before tokens are matched.
    """

    prefixes: tuple[bytes, ...]

    @classmethod
    def make(cls, vocabulary: Vocabulary, options: EncodeOptions) -> Cutter | None:
        """Create the cutter; return None if a chunk's ids may depend on the rest of the text."""
        if options.max_length is not None or options.reverse_complement or options.circular:
            return None
        if character_table(vocabulary) is None:
            return None
        special = [token for token in vocabulary.special_tokens if token.matched]
        if any(token.lstrip or token.rstrip or token.single_word for token in special):
            return None
        contents = {token.content.encode().lower() for token in special}
        prefixes = {content[:size] for content in contents for size in range(1, len(content))}
        return cls(tuple(sorted(prefixes, key=lambda prefix: (-len(prefix), prefix))))

    def cut(self, data: NDArray[np.uint8]) -> int:
        """Return the last place at which the text may be cut; 0 if there is none.

        Example: with the special token [MASK], the text "ACG[MA" may be cut after ACG.
        """
        place = len(data)
        for _ in range(MAX_STEPS):
            tail = data[max(0, place - self.longest) : place].tobytes().lower()
            prefix = next((prefix for prefix in self.prefixes if tail.endswith(prefix)), b"")
            if not prefix:
                return _character_begin(data, place)
            place -= len(prefix)
        return 0

    @property
    def longest(self) -> int:
        """The length of the longest prefix in bytes."""
        return len(self.prefixes[0]) if self.prefixes else 0


def _character_begin(data: NDArray[np.uint8], place: int) -> int:
    """Move a place before a non-ASCII character that may continue after the place."""
    begin = place
    while begin and place - begin < 3 and _is_continuation(data[begin - 1]):
        begin -= 1
    return begin - 1 if begin and data[begin - 1] > LAST_CONTINUATION else place


def _is_continuation(byte: np.uint8) -> bool:
    return bool(FIRST_CONTINUATION <= byte <= LAST_CONTINUATION)


class _Chunk(NamedTuple):
    """The position in the text at which a chunk begins, and the task that encodes the chunk."""

    begin: int
    task: asyncio.Task[Result[Encoded]]


async def encode_while_reading(
    body: RequestBody,
    cutter: Cutter,
    encode: Callable[[Batch], Awaitable[Result[Encoded]]],
    take: Take,
) -> list[Result[Encoded]]:
    """Encode a text in chunks, each while the next one is read; return their results in order.

    Args:
        body: the text.
        cutter: finds the places to cut.
        encode: encodes a batch of one row.
        take: allocates an array of a number of bytes.

    Raises:
        RowRefused: a chunk is refused; the error contains the place in the whole text.
    """
    chunks: list[_Chunk] = []
    buffer = take(CHUNK_BYTES)
    size = begin = 0
    is_over = False
    try:
        while not is_over:
            size += await body.read_into(buffer[size:])
            is_over = not await body.has_more()
            end = size if is_over else cutter.cut(buffer)
            if not end and size:  # There is no place to cut: make the chunk longer.
                larger = take(2 * len(buffer))
                larger[:size], buffer = buffer, larger
                continue
            batch = Batch(data=buffer[:end], offsets=np.array([0, end]))
            chunks.append(_Chunk(begin, asyncio.ensure_future(encode(batch))))
            rest = buffer[end:size]
            size = len(rest)
            begin += end
            buffer = take(max(CHUNK_BYTES, 2 * size))
            buffer[:size] = rest
        results = await asyncio.gather(*[chunk.task for chunk in chunks])
        for chunk, result in zip(chunks, results, strict=True):
            _check_chunk(result, chunk.begin)
        return results
    finally:
        # Break a cycle: a refusal's traceback refers to this frame, and tasks refer to the refusal.
        while chunks:
            chunks.pop().task.cancel()


def _check_chunk(result: Result[Encoded], begin: int) -> None:
    """Raise RowRefused, with the place in the whole text, if a chunk is refused."""
    error = result.errors.get(result.begin)
    if error is not None:
        raise RowRefused(shift_error(error, begin), "body")


def shift_error(error: RowError, begin: int) -> RowError:
    """Return an error in a chunk with its place in the whole text.

    Example: "byte 3" of a chunk that begins at 100 becomes "byte 103".
    """
    unit, _, byte = error.where.partition(" ")
    return replace(error, where=f"byte {begin + int(byte)}") if unit == "byte" else error
