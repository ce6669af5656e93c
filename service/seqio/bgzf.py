"""Block gzip (BGZF, .bgz): whether a stream of it has lost its end.

A file that was cut between two blocks is whole as gzip, and one of FASTA whole as FASTA. So BGZF
ends with an empty block. Some programs leave that out, Illumina's bcl2fastq for one, and htslib
therefore only warns. Those write FASTQ, where a cut is nearly always inside a record: FASTQ
without the marker is read, with a warning; anything else is refused.

    a block:  header, 18 bytes, the last two its size - 1 | deflate | checksum and length, 8 bytes
"""

from __future__ import annotations

import io
import logging
from typing import Any, BinaryIO, cast

from isal import igzip

logger = logging.getLogger(__name__)

HEADER_BYTES = 18
EMPTY_BYTES = 28  # The marker's; no other block is as small.
BEGIN, FIELD = b"\x1f\x8b\x08\x04", b"BC\x02\x00"
MESSAGE = "block gzip (BGZF) without the empty block that marks its end"
CUT = f"{MESSAGE}: it was cut off, or its writer left that out"


class BlockGzip:
    """Follows a gzip stream from block to block; nothing is unpacked for it."""

    def __init__(self) -> None:
        self._is_bgzf = True  # As far as the stream is known.
        self._header = b""
        self._size = self._left = 0  # Of the last block.

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes of the stream."""
        place = 0
        while self._is_bgzf and place < len(data):
            if self._left:
                taken = min(self._left, len(data) - place)
                self._left -= taken
            else:
                part = bytes(data[place : place + HEADER_BYTES - len(self._header)])
                taken = len(part)
                self._header += part
                if len(self._header) == HEADER_BYTES:
                    self._begin_block()
            place += taken

    def _begin_block(self) -> None:
        header, self._header = self._header, b""
        self._size = int.from_bytes(header[16:], "little") + 1
        self._left = self._size - HEADER_BYTES
        is_block = header.startswith(BEGIN) and header[12:16] == FIELD
        self._is_bgzf = is_block and self._size >= EMPTY_BYTES

    def check_end(self, begin: bytes, name: str = "") -> None:
        """At the stream's end.

        Args:
            begin: the first byte of what it unpacks to.
            name: what a warning calls it.

        Raises:
            EOFError: the marker is missing, and it is no FASTQ.
        """
        is_between = not self._left and not self._header
        if not self._is_bgzf or not is_between or self._size <= EMPTY_BYTES:
            return
        if begin != b"@":
            raise EOFError(CUT)
        self._is_bgzf = False  # Said once.
        logger.warning("%s: %s; reads may be missing", name or "a body", MESSAGE)


class UnpackedGzip(io.RawIOBase):
    """A gzip file, unpacked.

    Args:
        file: packed.
        name: for a warning.

    Raises, where it is read:
        EOFError, gzip.BadGzipFile, zlib.error, isal_zlib.error: it is damaged, or ends too early.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        super().__init__()
        self._blocks, self._name, self._begin = BlockGzip(), name, b""
        packed = cast("Any", _Watched(file, self._blocks))
        self._unpacked = igzip.IGzipFile(fileobj=packed, mode="rb")  # type: ignore[no-untyped-call]

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; none at the end."""
        size: int = self._unpacked.readinto(buffer)
        self._begin = self._begin or bytes(buffer[: min(size, 1)])
        if not size:
            self._blocks.check_end(self._begin, self._name)
        return size


class _Watched(io.RawIOBase):
    """A packed file whose bytes pass by a BlockGzip."""

    def __init__(self, file: BinaryIO, blocks: BlockGzip) -> None:
        super().__init__()
        self._file, self._blocks = file, blocks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._blocks.add(memoryview(buffer)[:size])
        return int(size)
