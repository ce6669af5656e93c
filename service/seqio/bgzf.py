"""Detects truncated block gzip (BGZF, .bgz).

A BGZF file that was truncated between two blocks is still valid gzip, and may still be valid FASTA.
So BGZF ends with an empty block as a marker. Some programs, such as Illumina's bcl2fastq, omit it;
they write FASTQ, which nearly always shows a truncation by an incomplete record. Therefore FASTQ
without the marker is read with a warning, and other content without it is refused.

    a block:  header, 18 bytes, the last two its size - 1 | deflate | checksum and length, 8 bytes
"""

from __future__ import annotations

import io
import logging
from typing import Any, BinaryIO, cast

from isal import igzip

logger = logging.getLogger(__name__)

HEADER_BYTES = 18
EMPTY_BYTES = 28  # The size of the end marker; every other block is larger.
BEGIN, FIELD = b"\x1f\x8b\x08\x04", b"BC\x02\x00"
MESSAGE = "block gzip (BGZF) without the empty block that marks its end"
CUT = f"{MESSAGE}: it was cut off, or its writer omits that block"


class BgzfChecker:
    """Follows a gzip stream from block to block without decompressing it."""

    def __init__(self) -> None:
        self._is_bgzf = True  # Until a header says otherwise.
        self._header = b""
        self._size = 0  # Of the last block, in bytes.
        self._remaining = 0  # Bytes of the last block that have not come.

    def add(self, data: bytes | memoryview) -> None:
        """Process the next bytes of the stream."""
        place = 0
        while self._is_bgzf and place < len(data):
            if self._remaining:
                num_bytes = min(self._remaining, len(data) - place)
                self._remaining -= num_bytes
            else:
                part = bytes(data[place : place + HEADER_BYTES - len(self._header)])
                num_bytes = len(part)
                self._header += part
                if len(self._header) == HEADER_BYTES:
                    self._begin_block()
            place += num_bytes

    def _begin_block(self) -> None:
        """Read the size of the next block from its header."""
        header = self._header
        self._header = b""
        self._size = int.from_bytes(header[16:], "little") + 1
        self._remaining = self._size - HEADER_BYTES
        is_block = header.startswith(BEGIN) and header[12:16] == FIELD
        self._is_bgzf = is_block and self._size >= EMPTY_BYTES

    def check_end(self, begin: bytes, name: str = "") -> None:
        """Check the end marker; called at the end of the stream.

        Args:
            begin: the first byte of the decompressed content.
            name: the name of the stream in a warning.

        Raises:
            EOFError: the marker is missing, and the content is not FASTQ.
        """
        is_between = not self._remaining and not self._header
        if not self._is_bgzf or not is_between or self._size <= EMPTY_BYTES:
            return
        if begin != b"@":
            raise EOFError(CUT)
        self._is_bgzf = False  # Warn only once.
        logger.warning("%s: %s; reads may be missing", name or "a body", MESSAGE)


class UnpackedGzip(io.RawIOBase):
    """A readable stream that decompresses a gzip file.

    Args:
        file: the compressed file.
        name: the name of the file in a warning.

    Reading raises EOFError, gzip.BadGzipFile, zlib.error or isal_zlib.error if the file is damaged
    or truncated.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        super().__init__()
        self._blocks = BgzfChecker()
        self._name = name
        self._begin = b""  # The first unpacked byte.
        packed = cast("Any", _WatchedFile(file, self._blocks))
        self._unpacked = igzip.IGzipFile(fileobj=packed, mode="rb")  # type: ignore[no-untyped-call]

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Decompress the next bytes into a buffer; return their number, 0 at the end."""
        size: int = self._unpacked.readinto(buffer)
        self._begin = self._begin or bytes(buffer[: min(size, 1)])
        if not size:
            self._blocks.check_end(self._begin, self._name)
        return size


class _WatchedFile(io.RawIOBase):
    """Reads a compressed file and passes each byte to a BgzfChecker as well."""

    def __init__(self, file: BinaryIO, blocks: BgzfChecker) -> None:
        super().__init__()
        self._file = file
        self._blocks = blocks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._blocks.add(memoryview(buffer)[:size])
        return int(size)
