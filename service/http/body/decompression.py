"""Decompresses gzip, deflate and zstd bodies in pieces while they arrive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from isal import isal_zlib

from service.core.errors import BadBody, UnsupportedFormat
from service.seqio.bgzf import BgzfChecker

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

HEADER = "Content-Encoding"
PIECE_BYTES = 1 << 20  # The maximum size of a decompressed piece.


class OtherBytes(Exception):
    """Compressed data is followed by bytes that are not compressed."""


class Gzip:
    """Decompresses gzip with one member, or with several, as bgzip writes it.

    Attributes:
        name: the name of the encoding in refusals.
        wbits: zlib's parameter for the format.
        padding: a byte that is skipped after a member, any number of times.
        magic: the first bytes of a member.
    """

    name = "gzip"
    wbits = 31
    padding = b"\0"
    magic = b"\x1f\x8b"

    def __init__(self) -> None:
        self.member = isal_zlib.decompressobj(self.wbits)
        self._blocks = BgzfChecker()
        self._begin = b""

    def check_end(self) -> None:
        """Raise EOFError if the last member is incomplete, or bgzip's end marker is missing."""
        if not self.member.eof:
            raise EOFError("it ends too early")
        self._blocks.check_end(self._begin)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes, in pieces of at most PIECE_BYTES.

        Raises:
            OtherBytes: the bytes after a member do not begin another member.
        """
        self._blocks.add(data)
        piece = b""
        while data or len(piece) == PIECE_BYTES:
            if self.member.eof:
                data = data.lstrip(self.padding)
                if not data:
                    return
                if not data.startswith(self.magic[: len(data)]):
                    raise OtherBytes(f"other bytes follow the end of the {self.name} data")
                self.member = isal_zlib.decompressobj(self.wbits)
            piece = self.member.decompress(data, PIECE_BYTES)
            if piece:
                self._begin = self._begin or piece[:1]
                yield piece
            data = self.member.unused_data if self.member.eof else self.member.unconsumed_tail
            if self.member.eof:
                piece = b""


class Deflate(Gzip):
    """Decompresses the zlib format, which HTTP calls deflate."""

    name = "deflate"
    wbits = 15
    padding = b""
    magic = b""


class Zstd:
    """Decompresses zstd with one frame or several."""

    name = "zstd"

    def __init__(self) -> None:
        self.frame = ZstdDecompressor()

    def check_end(self) -> None:
        """Raise EOFError if the last frame is incomplete."""
        if not self.frame.eof:
            raise EOFError("it ends too early")

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes, in pieces of at most PIECE_BYTES."""
        while True:
            if self.frame.eof:
                if not data:
                    return
                self.frame = ZstdDecompressor()
            piece = self.frame.decompress(data, PIECE_BYTES)
            if piece:
                yield piece
            data = self.frame.unused_data if self.frame.eof else b""
            if not self.frame.eof and self.frame.needs_input:
                return


Decompressor = Gzip | Zstd
ENCODINGS: dict[str, Callable[[], Decompressor]] = {
    "gzip": Gzip,
    "x-gzip": Gzip,
    "deflate": Deflate,
    "zstd": Zstd,
}


def make_decompressor(encoding: str | None) -> Decompressor | None:
    """Create the decompressor for a Content-Encoding; return None if the body is not compressed.

    Raises:
        UnsupportedFormat: the encoding is not supported.
    """
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return None
    if name not in ENCODINGS:
        raise UnsupportedFormat(
            f"the encoding {encoding} is not supported; use gzip, deflate, zstd or none",
            HEADER,
        )
    return ENCODINGS[name]()


def decompress(decompressor: Decompressor, data: bytes, where: str = HEADER) -> Iterator[bytes]:
    """Decompress the next bytes of a body, piece by piece.

    Args:
        decompressor: the decompressor of the body.
        data: the bytes.
        where: the place for a refusal, such as the part of a form.

    Raises:
        BadBody: the bytes are not valid in the encoding.
    """
    try:
        yield from decompressor.pieces(data)
    except (isal_zlib.error, ZstdError) as error:  # type: ignore[misc]  # Its stub says an instance.
        message = f"the body is not {decompressor.name}: {error}"
        raise BadBody(message, where) from error
    except OtherBytes as error:
        raise BadBody(str(error), where) from error


def check_whole(decompressor: Decompressor, where: str = HEADER) -> None:
    """Raise BadBody with the place `where` if a compressed body has ended too early."""
    try:
        decompressor.check_end()
    except EOFError as error:
        message = f"the {decompressor.name} body is incomplete: {error}"
        raise BadBody(message, where) from error
