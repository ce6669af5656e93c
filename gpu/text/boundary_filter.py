"""Makes filters for the borders of characters at which no token can contain both sides.

A piece may be split at such a border. cuda/text/split/boundary_filter.cuh reads the filters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.kernels.job import constant
from gpu.text.hash_functions import hash_pairs, mixed

BORDER_BITS = constant("BORDER_BITS")
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class BorderFilters:
    """Sets of borders that some token may lie across; a bit that is set too many is harmless.

    Attributes:
        borders: uint32[2**19 / 32], a bit for the hash of two characters, or of a character and the
            nearest byte of an incomplete one.
        byte_borders: uint32[65536 / 32], a bit for two bytes, left << 8 | right, that are ASCII or
            belong to two incomplete characters.
    """

    borders: NDArray[np.uint32]
    byte_borders: NDArray[np.uint32]


def border_filters(data: Bytes, begins: NDArray[np.integer], seed: int) -> BorderFilters:
    """Make the filters for tokens, given by their joined bytes uint8[N] and offsets uint32[V + 1].

    The filters contain every border of two characters inside a token. The first and the last
    character of a token may be incomplete.
    """
    places = np.arange(len(data))
    owner = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    begin, end = begins[:-1][owner].astype(np.int64), begins[1:][owner].astype(np.int64)
    inside = (places > begin) & (data & 0xC0 != 0x80)
    pairs = np.roll(data, 1).astype(np.int64) << 8 | data
    ascii_pairs = pairs[inside & (pairs & 0x8080 == 0)]
    inside &= pairs & 0x8080 != 0
    place, begin, end = places[inside], begin[inside], end[inside]
    left, left_whole = _characters_before(data, place, begin)
    right, right_whole = _characters_at(data, place, end)
    last, first = data[place - 1].astype(np.uint32) << np.uint32(24), data[place].astype(np.uint32)
    keys = [
        hash_pairs(before[chosen], behind[chosen], seed)
        for before, behind, chosen in (
            (left, right, left_whole & right_whole),
            (left, first, left_whole & ~right_whole),
            (last, right, ~left_whole & right_whole),
        )
    ]
    bits = np.zeros(1 << BORDER_BITS, np.uint8)
    bits[mixed(np.concatenate(keys)) >> np.uint32(32 - BORDER_BITS)] = 1
    byte_bits = np.zeros(1 << 16, np.uint8)
    byte_bits[pairs[place[~left_whole & ~right_whole]]] = 1
    byte_bits[ascii_pairs] = 1
    return BorderFilters(_packed(bits), _packed(byte_bits))


def _packed(bits: Bytes) -> NDArray[np.uint32]:
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _characters_before(
    data: Bytes, place: NDArray[np.int64], begin: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], Mask]:
    """Return the characters that end before `place`, last byte highest; and which are whole."""
    bytes_back = [data[np.maximum(place - back, 0)].astype(np.uint32) for back in (1, 2, 3, 4)]
    here = [place - back >= begin for back in (1, 2, 3, 4)]
    values = np.zeros(len(place), np.uint32)
    whole = np.zeros(len(place), np.bool_)
    packed = np.zeros(len(place), np.uint32)
    for number, (byte, is_here) in enumerate(zip(bytes_back, here, strict=True)):
        packed = packed | byte << np.uint32(24 - 8 * number)
        complete = is_here & _leads(byte, number + 1) & ~whole
        if number:
            complete &= np.logical_and.reduce([b & 0xC0 == 0x80 for b in bytes_back[:number]])
        values[complete] = packed[complete]
        whole |= complete
    return values, whole


def _characters_at(
    data: Bytes, place: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], Mask]:
    """Return the characters that begin at `place`, first byte lowest; and which are whole."""
    values = np.zeros(len(place), np.uint32)
    whole = np.zeros(len(place), np.bool_)
    packed = np.zeros(len(place), np.uint32)
    goes_on = np.ones(len(place), np.bool_)
    for number in range(4):
        byte = data[np.minimum(place + number, len(data) - 1)].astype(np.uint32)
        goes_on &= (place + number < end) & ((number == 0) | (byte & 0xC0 == 0x80))
        packed = packed | byte << np.uint32(8 * number)
        complete = goes_on & _leads(data[place].astype(np.uint32), number + 1)
        values[complete] = packed[complete]
        whole |= complete
    return values, whole


def _leads(byte: NDArray[np.uint32], length: int) -> Mask:
    """Return whether a byte is the first of a character of `length` bytes."""
    lowest, highest = ((0, 0x7F), (0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xFF))[length - 1]
    return (byte >= lowest) & (byte <= highest)
