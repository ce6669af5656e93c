"""Where a text may be cut so that its parts' ids, one after another, are its own.

For vocabularies that give each character an id by itself: what comes in can be encoded while the
rest is still on its way, in memory that stays in the processor's cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.batching.work import Result
from service.core.errors import RowRefused
from service.http.request_body import RequestBody
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.model.tables import character_table
from vocabularies.model.vocabulary import Vocabulary

CONTINUES = 0x80, 0xBF  # Bytes that no character begins with.
MAX_STEPS = 64  # Begun special tokens, one behind the other, after which no cut is looked for.
PART_BYTES = 1 << 21  # Half as many cost a sixth more, twice as many a twentieth less.


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts texts of one vocabulary; no character and no special token is cut in two.

    Attributes:
        prefixes: what a special token that the text's end cuts off can look like, the longest
            first, in lower case.
    """

    prefixes: tuple[bytes, ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary, options: EncodeOptions) -> Cutter | None:
        """None where the ids of a part depend on the rest, or the options need the whole text."""
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
        """The last place, at most len(data), where the text may be cut; 0 where none was found.

        Example: with the special token [MASK] the text "ACG[MA" may be cut behind ACG.
        """
        place = len(data)
        for _ in range(MAX_STEPS):
            tail = data[max(0, place - self.longest) : place].tobytes().lower()
            begun = next((prefix for prefix in self.prefixes if tail.endswith(prefix)), b"")
            if not begun:
                return _character_begin(data, place)
            place -= len(begun)
        return 0

    @property
    def longest(self) -> int:
        """Bytes of the longest prefix."""
        return len(self.prefixes[0]) if self.prefixes else 0


def _character_begin(data: NDArray[np.uint8], place: int) -> int:
    """The place, or the begin of the non-ASCII character before it, which may go on behind it."""
    begin = place
    while begin and place - begin < 3 and CONTINUES[0] <= data[begin - 1] <= CONTINUES[1]:
        begin -= 1
    return begin - 1 if begin and data[begin - 1] > CONTINUES[1] else place


async def encode_while_reading(
    body: RequestBody,
    cutter: Cutter,
    encode: Callable[[Batch], Awaitable[Result[Encoded]]],
    take: Take,
) -> list[Result[Encoded]]:
    """The results of a text's parts, in order; a part is encoded while the next one is read.

    Args:
        body: the text, as it comes.
        cutter: where it may be cut.
        encode: gives the result of a batch of one row.
        take: gives memory for parts.

    Raises:
        RowRefused: a part is refused; its place is counted from the text's begin.
    """
    parts: list[tuple[int, asyncio.Task[Result[Encoded]]]] = []
    buffer, size, begin, is_over = take(PART_BYTES), 0, 0, False
    try:
        while not is_over:
            size += await body.read_into(buffer[size:])
            is_over = not await body.has_more()
            end = size if is_over else cutter.cut(buffer)
            if not end and size:  # Nowhere to cut: the part becomes longer.
                larger = take(2 * len(buffer))
                larger[:size], buffer = buffer, larger
                continue
            batch = Batch(data=buffer[:end], offsets=np.array([0, end]))
            parts.append((begin, asyncio.ensure_future(encode(batch))))
            rest = buffer[end:size]
            size, begin = len(rest), end + begin
            buffer = take(max(PART_BYTES, 2 * size))
            buffer[:size] = rest
        results = await asyncio.gather(*(task for _, task in parts))
        begins = [part_begin for part_begin, _ in parts]
        return [_checked(result, begin) for result, begin in zip(results, begins, strict=True)]
    finally:
        # A refusal's traceback leads here: what leads from here to the tasks that have it goes.
        while parts:
            parts.pop()[1].cancel()


def _checked(result: Result[Encoded], begin: int) -> Result[Encoded]:
    """Raises RowRefused, with the place in the whole text, where a part was refused."""
    error = result.errors.get(result.begin)
    if error is not None:
        raise RowRefused(shifted(error, begin), "body")
    return result


def shifted(error: RowError, begin: int) -> RowError:
    """What is wrong with a part that begins there, with its place in the whole text."""
    word, _, byte = error.where.partition(" ")
    return replace(error, where=f"byte {begin + int(byte)}") if word == "byte" else error
