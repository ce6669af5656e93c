"""What records hold beside bases: white space, which does not count, and what no sequence has."""

from __future__ import annotations

import re

import numpy as np

FEW_BYTES = 4096  # A call of NumPy's costs as much as this.
LETTERS = 65, 126  # With what stands between and behind them in ASCII.
PRINTED = 36  # From here on there is no white space, and no "#".
TOKEN = re.compile(rb"<[^<>]+>")  # Such as <mask>.
NO_BASE = re.compile(rb"[\x00-\x1f\x7f;>+]")
REASONS = {
    b">": "has '>' inside a line; were files joined without a line end between them?",
    b";": "has ';'; comments are not read",
    b"+": "has '+'; is it FASTQ?",
}


def is_plain(data: bytes) -> bool:
    """Whether there is nothing that `bases_of` would look at; False where only that can say."""
    if len(data) < FEW_BYTES:
        return not data or data.isalpha()
    values = np.frombuffer(data, np.uint8)
    least = values.min()
    if least < PRINTED or values.max() > LETTERS[1]:
        return False
    return bool(least >= LETTERS[0]) or not any(sign in data for sign in REASONS)


def bases_of(data: bytes) -> bytes:
    """A sequence, or a part of one, without its white space.

    Args:
        data: ASCII.

    Raises:
        ValueError: it holds what is neither a base nor a special token; says what, to go on with
            after "the sequence".
    """
    if is_plain(data):
        return data
    bases = "".join(data.decode().split()).encode()
    if found := NO_BASE.search(TOKEN.sub(b"", bases)):
        raise ValueError(REASONS.get(found[0], f"has the byte 0x{found[0][0]:02x}"))
    return bases
