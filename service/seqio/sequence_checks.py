"""Checks that sequences contain only bases and special tokens, and removes white space."""

from __future__ import annotations

import re

import numpy as np

NUMPY_BYTES = 4096  # From this size on NumPy is faster than the methods of bytes.
FIRST_LETTER = 65
LAST_SIGN = 126  # The largest ASCII value that may stand in a sequence.
FIRST_VISIBLE = 36  # From here on no ASCII value is white space or "#".
TOKEN = re.compile(rb"<[^<>]+>")  # Such as <mask>.
NO_BASE = re.compile(rb"[\x00-\x1f\x7f;>+]")
REASONS = {
    b">": "has '>' inside a line; were files joined without a line end between them?",
    b";": "has ';'; comments are not read",
    b"+": "has '+'; is it FASTQ?",
}


class BadRecord(ValueError):
    """A record of a file is invalid; `number` is its number in the file, counted from 1."""

    def __init__(self, reason: str, number: int, behind: str = "") -> None:
        super().__init__(f"{reason} (record {number}{behind})")
        self.number = number


def is_plain(data: bytes) -> bool:
    """Return True if `check_bases` would certainly return the data unchanged.

    The check is fast; False means that `check_bases` has to be called.
    """
    if len(data) < NUMPY_BYTES:
        return not data or data.isalpha()
    values = np.frombuffer(data, np.uint8)
    smallest = values.min()
    if smallest < FIRST_VISIBLE or values.max() > LAST_SIGN:
        return False
    return bool(smallest >= FIRST_LETTER) or not any(sign in data for sign in REASONS)


def check_bases(data: bytes) -> bytes:
    """Return a sequence, or a part of one, without its white space.

    Args:
        data: the bytes of the sequence, which must be ASCII.

    Raises:
        ValueError: a byte is neither a base nor part of a special token; the message continues a
            sentence that begins "the sequence".
    """
    if is_plain(data):
        return data
    bases = "".join(data.decode().split()).encode()
    if found := NO_BASE.search(TOKEN.sub(b"", bases)):
        raise ValueError(REASONS.get(found[0], f"has the byte 0x{found[0][0]:02x}"))
    return bases
