"""Writes block gzip as bgzip does."""

from __future__ import annotations

import struct
import zlib

# From the specification of SAM, 4.1.2.
END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


def blocks(data: bytes, size: int) -> list[bytes]:
    """Compress every `size` bytes to a block."""
    return [_block(data[begin : begin + size]) for begin in range(0, len(data), size)]


def block_gzip(data: bytes, size: int = 7) -> bytes:
    """Compress data to a whole file."""
    return b"".join([*blocks(data, size), END])


def _block(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    packed = deflate.compress(data) + deflate.flush()
    header = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff\x06\x00BC\x02\x00"
    ending = struct.pack("<II", zlib.crc32(data), len(data))
    return header + struct.pack("<H", len(packed) + 25) + packed + ending
