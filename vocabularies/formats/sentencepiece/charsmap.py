"""Looks texts up in the normalization rules of a SentencePiece model.

The rules are a 32-bit size, a double-array trie of that size, and the replacements, each ended by a
NUL. A unit of the trie has a label (bits 0 to 7 and 31), whether a key ends at it (bit 8), and an
offset to its children (bits 10 to 30, times 256 if bit 9 is set). The first child of a unit at
which a key ends is the place of the key's replacement.
"""

from __future__ import annotations

import struct

MAX_KEY = 64  # Bytes; 18 in the rules that SentencePiece comes with.


def find_rewritten(charsmap: bytes, text: str) -> bool:
    """Return whether a rule would replace a part of a text."""
    data = text.encode()
    return any(_find_rule(charsmap, data[i : i + MAX_KEY]) is not None for i in range(len(data)))


def find_replacement(charsmap: bytes, data: bytes) -> bytes | None:
    """Return the replacement of the shortest key with which the data begin; None without one."""
    begin = _find_rule(charsmap, data)
    if begin is None:
        return None
    end = charsmap.find(b"\0", begin)
    return charsmap[begin : end if end >= 0 else len(charsmap)]


def _find_rule(charsmap: bytes, data: bytes) -> int | None:
    """Return the place of the replacement of the shortest key with which the data begin."""
    size = int.from_bytes(charsmap[:4], "little")
    num_units = min(size, len(charsmap) - 4) // 4
    if num_units <= 0:
        return None
    place = _offset(_unit(charsmap, 0))
    for byte in data:
        place ^= byte
        if place >= num_units:
            return None
        unit = _unit(charsmap, place)
        if unit & (1 << 31 | 0xFF) != byte:
            return None
        place ^= _offset(unit)
        if unit >> 8 & 1:
            if place >= num_units:
                return None
            return 4 + size + (_unit(charsmap, place) & (1 << 31) - 1)
    return None


def _unit(charsmap: bytes, place: int) -> int:
    (unit,) = struct.unpack_from("<I", charsmap, 4 + 4 * place)
    return int(unit)


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 1 << 9) >> 6)
