"""Cuts a file of lines into blocks of whole lines.

    block 0          block 1          block 2
    |-- line --|-- line ----|-- line ------------------|-- line --|

A plain local file is read by several threads: a block contains the lines that begin in its range of
bytes, wherever they end. A compressed file, or a URL, is read in order, and a block ends after the
last whole line. In both cases a later reading may start at the first byte of any line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from service.corpus.documents import Reject
from service.corpus.inputs import (
    DIGEST_BYTES,
    PACKED_BYTES,
    DigestedFile,
    Input,
    detect_compression,
    naming_errors,
    open_input,
    unpack,
)
from service.runtime.memory_pool import Take

BLOCK_BYTES = DIGEST_BYTES
TAIL_BYTES = 64 << 10
STREAM_BYTES = 256 << 10  # As much of a damaged stream may be lost before the damaged place.
PAGE_BYTES = 4096
NEWLINE = b"\n"


@dataclass(slots=True)
class LineBlock:
    """Whole lines.

    Attributes:
        data: uint8[N], writable; at the end of the file, the last line may have no line feed.
        begin: the place of the first byte in the decompressed file.
        end: the place at which the next block begins.
        num_bytes: the bytes of the compressed file that were read for the block.
        rejects: lines that are too long.
        digests: the digests of blocks of the compressed file.
    """

    data: NDArray[np.uint8]
    begin: int
    end: int
    num_bytes: int
    rejects: list[Reject] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)


def allocate(num_bytes: int) -> NDArray[np.uint8]:
    """Allocate uint8[num_bytes] in ordinary memory, which malloc keeps for the next block."""
    return np.empty(num_bytes, np.uint8)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of all blocks of a file.

    Attributes:
        max_bytes: the most bytes of a line without its line feed; longer lines are rejected.
        is_digested: whether the digests of blocks are computed.
        wait_for_turn: returns when no earlier block is in memory; called before a block grows.
        take: allocates at least so many bytes of memory for a block.
    """

    max_bytes: int
    is_digested: bool
    wait_for_turn: Callable[[], None]
    take: Take


LoadBlock = Callable[[], LineBlock]


def read_line_blocks(file: Input, start: int, limits: Limits) -> Iterator[LoadBlock]:
    """Yield functions that load one block of lines each, in order, from a place on.

    Lines that are too long are rejected; in their block they are replaced by spaces.

    Args:
        file: the file.
        start: the place of the first line.
        limits: the limits of all blocks.

    Raises:
        UnreadableInput: the file cannot be read; the blocks before the fault are yielded first.
    """
    with naming_errors(file):
        if file.is_local and _is_plain(file):
            for number in range(start // BLOCK_BYTES, -(-file.size // BLOCK_BYTES)):
                yield partial(_load_block, _PlainBlock(file, number, start, limits).load, limits)
        else:
            for load in _stream_blocks(file, start, limits):
                yield partial(_load_block, load, limits)


def _is_plain(file: Input) -> bool:
    with open_input(file) as opened:
        return not detect_compression(opened.read(4))


def _load_block(load: LoadBlock, limits: Limits) -> LineBlock:
    block = load()
    if len(block.data) > limits.max_bytes:
        _reject_long_lines(block, limits.max_bytes)
    return block


def _reject_long_lines(block: LineBlock, max_bytes: int) -> None:
    """Reject lines by their length, so that the result does not depend on the limits of blocks."""
    ends = [
        begin + np.flatnonzero(block.data[begin : begin + TAIL_BYTES] == ord(NEWLINE))
        for begin in range(0, len(block.data), TAIL_BYTES)
    ]
    bounds = np.concatenate([[-1], *ends, [len(block.data)]])
    for number in np.flatnonzero(np.diff(bounds) - 1 > max_bytes).tolist():
        begin, end = int(bounds[number]) + 1, int(bounds[number + 1])
        block.data[begin:end] = ord(" ")  # A blank line is no document.
        block.rejects.append(_too_long(block.begin + begin, max_bytes))
    block.rejects.sort()


def _too_long(place: int, max_bytes: int) -> Reject:
    return Reject(place, "too_long", f"the line has more than {max_bytes} bytes")


@dataclass(frozen=True, slots=True)
class _PlainBlock:
    """Loads the lines that begin in one block of a plain file, at `start` or after it."""

    file: Input
    number: int
    start: int
    limits: Limits

    def load(self) -> LineBlock:
        with naming_errors(self.file), open(self.file.path, "rb", buffering=0) as opened:
            return self._load(opened.fileno())

    def _load(self, descriptor: int) -> LineBlock:
        first = self.number * BLOCK_BYTES
        last = min(first + BLOCK_BYTES, self.file.size)
        # A line begins behind a line feed, so the byte before the block belongs to the search.
        before = min(first, 1)
        size = last - first
        memory = self.limits.take(before + size + TAIL_BYTES + PAGE_BYTES)
        # On AMD a copy whose target is a few bytes further in its page than its source takes twice
        # the time, so both begin with a page.
        shift = -(memory.ctypes.data + before) % PAGE_BYTES
        memory = memory[shift : shift + before + size + TAIL_BYTES]
        num_read = _read_at(descriptor, memory, first - before)
        if num_read < before + size:
            raise OSError("the file became shorter during reading")
        digests = {}
        if self.limits.is_digested:
            digests[self.number] = hashlib.sha256(memory[before : before + size].data).digest()
        begin = self._find_begin(memory[: before + size], first - before)
        block = LineBlock(memory[:0], last, last, size, digests=digests)
        if begin is None:
            return block
        block.begin = begin
        offset = begin - (first - before)
        memory, line_end = self._read_last_line(descriptor, memory, num_read, before + size)
        if line_end is None:
            keep = _behind_last_newline(memory[offset : before + size]) + offset
            place = first - before + keep
            block.rejects.append(_too_long(place, self.limits.max_bytes))
            line_end = keep
        block.data = memory[offset:line_end]
        return block

    def _find_begin(self, memory: NDArray[np.uint8], place: int) -> int | None:
        """Return the place of the first line; None if no line begins in the block."""
        if self.start == 0 and place == 0:
            return 0 if len(memory) else None
        skipped = max(0, self.start - 1 - place)
        found = _find_newline(memory[skipped : len(memory) - 1])
        return None if found is None else place + skipped + found + 1

    def _read_last_line(
        self, descriptor: int, memory: NDArray[np.uint8], num_read: int, block_end: int
    ) -> tuple[NDArray[np.uint8], int | None]:
        """Read up to the end of the last line; None if the line is too long."""
        searched = block_end - 1  # Its line feed may be the last byte of the block.
        while True:
            found = _find_newline(memory[searched:num_read])
            if found is not None:
                return memory, searched + found + 1
            if num_read < len(memory):
                return memory, num_read
            if num_read - block_end > self.limits.max_bytes:
                return memory, None
            searched = num_read
            self.limits.wait_for_turn()
            memory = _grow(memory, num_read)
            before = min(self.number, 1)
            place = self.number * BLOCK_BYTES - before + num_read
            num_read += _read_at(descriptor, memory[num_read:], place)


def _grow(memory: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return a buffer of twice the size with a copy of the first `size` bytes."""
    grown = np.empty(2 * len(memory), np.uint8)
    grown[:size] = memory[:size]
    return grown


def _read_at(descriptor: int, memory: NDArray[np.uint8], place: int) -> int:
    """Fill a buffer from a place of a file; return the bytes, which are fewer only at the end."""
    done = 0
    view = memory.data
    while done < len(memory):
        size = os.preadv(descriptor, [view[done:]], place + done)
        if not size:
            break
        done += size
    return done


def _find_newline(memory: NDArray[np.uint8]) -> int | None:
    """Return the place of the first line feed; None if there is none."""
    for begin in range(0, len(memory), TAIL_BYTES):
        found = memory[begin : begin + TAIL_BYTES].tobytes().find(NEWLINE)
        if found >= 0:
            return begin + found
    return None


def _behind_last_newline(memory: NDArray[np.uint8]) -> int:
    """Return the place after the last line feed; 0 if there is none."""
    end = len(memory)
    while end:
        begin = max(0, end - TAIL_BYTES)
        found = memory[begin:end].tobytes().rfind(NEWLINE)
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _stream_blocks(file: Input, start: int, limits: Limits) -> Iterator[LoadBlock]:
    """Cut a decompressed stream into blocks; yield each block before reading the next one.

    The blocks are those of a reading from the begin of the file, as the last one before a damaged
    place must not depend on `start`.

    Raises:
        Exception: the stream is damaged; its whole lines before that were yielded.
        OSError: the stream ends too early.
    """
    with DigestedFile(open_input(file), limits.is_digested) as packed:
        unpacked = _UntilDamage(unpack(BufferedReader(packed, PACKED_BYTES), file.path))
        place = num_packed = 0
        rest = np.zeros(0, np.uint8)
        is_end = False
        while not is_end:
            block, rest, is_end = _next_block(unpacked, place, rest, limits)
            if unpacked.error is not None:
                _drop_incomplete_line(block)
            place = block.end
            if place < start or (place == start and not is_end):
                continue
            _drop_lines_before(block, start)
            block.num_bytes, num_packed = packed.num_bytes - num_packed, packed.num_bytes
            if unpacked.error is None:  # A damaged file has no digest.
                block.digests = packed.take_digests(is_end)
            given = [block]
            del block  # So that only who loads the block has it.
            yield given.pop
        if unpacked.error is not None:
            raise unpacked.error
        if place < start:
            raise OSError("the file became shorter since an earlier run")


def _drop_incomplete_line(block: LineBlock) -> None:
    keep = _behind_last_newline(block.data)
    block.data, block.end = block.data[:keep], block.begin + keep


def _drop_lines_before(block: LineBlock, start: int) -> None:
    """Remove the lines before a place, which is the begin of a line or the end of the block."""
    if block.begin < start:
        block.data = block.data[start - block.begin :]
        block.begin = start
    block.rejects = [reject for reject in block.rejects if reject.place >= start]


class _UntilDamage:
    """Reads a stream as if it ended at a damaged place.

    Args:
        stream: the stream.

    Attributes:
        error: the error that reading has raised; None: none yet.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.error: Exception | None = None
        self._stream = stream

    def readinto(self, memory: memoryview) -> int:
        """Read the next bytes; return their number, 0 at the end and at a damaged place."""
        if self.error is not None:
            return 0
        try:
            size: int = self._stream.readinto(memory[:STREAM_BYTES])  # type: ignore[attr-defined]
        except Exception as error:
            self.error = error
            return 0
        return size


def _fill(stream: _UntilDamage, memory: NDArray[np.uint8], done: int) -> int:
    """Fill a buffer after its first `done` bytes; return all its bytes, fewer only at the end."""
    view = memory.data
    while done < len(memory):
        size = stream.readinto(view[done:])
        if not size:
            break
        done += size
    return done


def _next_block(
    stream: _UntilDamage, begin: int, rest: NDArray[np.uint8], limits: Limits
) -> tuple[LineBlock, NDArray[np.uint8], bool]:
    """Read a block; also return the incomplete line after it, and whether the stream has ended."""
    num_bytes = max(BLOCK_BYTES, 2 * len(rest))
    memory = limits.take(num_bytes)[:num_bytes]
    memory[: len(rest)] = rest
    size = len(rest)
    while True:
        # No more than a block at a time: what is read behind the line is copied to the next block.
        searched, wanted = size, min(len(memory), size + BLOCK_BYTES)
        size = _fill(stream, memory[:wanted], size)
        if size < wanted:
            return LineBlock(memory[:size], begin, begin + size, 0), memory[:0], True
        keep = _behind_last_newline(memory[searched:size])
        if keep:
            keep += searched
            return LineBlock(memory[:keep], begin, begin + keep, 0), memory[keep:size].copy(), False
        if size > limits.max_bytes:
            del memory
            return _skip_long_line(stream, begin, size, limits.max_bytes)
        if size == len(memory):
            limits.wait_for_turn()
            memory = _grow(memory, size)


def _skip_long_line(
    stream: _UntilDamage, begin: int, size: int, max_bytes: int
) -> tuple[LineBlock, NDArray[np.uint8], bool]:
    """Skip a line that is too long, of which `size` bytes were read, and read the next lines."""
    place = begin + size
    memory = np.empty(BLOCK_BYTES, np.uint8)
    while True:
        num_read = _fill(stream, memory, 0)
        found = _find_newline(memory[:num_read])
        if found is not None or num_read < len(memory):
            break
        place += num_read
    first = num_read if found is None else found + 1
    is_end = num_read < len(memory)
    end = num_read if is_end else first + _behind_last_newline(memory[first:num_read])
    rejects = [_too_long(begin, max_bytes)]
    block = LineBlock(memory[first:end], place + first, place + end, 0, rejects)
    return block, memory[end:num_read].copy(), is_end
