"""The hash functions of cuda/common/hash.cuh in NumPy, with which tables are filled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInt32s = NDArray[np.uint32]
_WORD_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_LONG_FACTORS = (0x165667B1, 0xD3A2646D, 0xFD7046C5)


def mixed(hashes: UInt32s) -> UInt32s:
    """Mix hashes so that the upper bits depend on all bits."""
    return (hashes ^ hashes >> np.uint32(15)) * np.uint32(0x2C1B3C6D)


def hash_pairs(left: UInt32s, right: UInt32s, seed: int) -> UInt32s:
    """Hash pairs of numbers, uint32[n] each."""
    return left * np.uint32(0x9E3779B1) + (right + np.uint32(seed)) * np.uint32(0x85EBCA77)


def hash_words(words: UInt32s, sizes: UInt32s, seed: int) -> UInt32s:
    """Hash pieces, given by their words uint32[n, 3] or [n, 7] and lengths uint32[n]."""
    hashes = (sizes + np.uint32(seed)) * np.uint32(0x27D4EB2F)
    for column, factor in enumerate(_WORD_FACTORS):
        hashes = hashes + words[:, column] * np.uint32(factor)
    if words.shape[1] > len(_WORD_FACTORS):
        for column, factor in enumerate(_LONG_FACTORS):
            hashes = hashes + (words[:, 3 + column] ^ words[:, column]) * np.uint32(factor)
        hashes = hashes + words[:, 6] * np.uint32(0xB55A4F09)
    return hashes


def hash_bytes(token: bytes, seed: int) -> int:
    """Hash bytes of any length, in words of four bytes padded with zeros."""
    value = seed ^ len(token)
    for place in range(0, len(token), 4):
        word = int.from_bytes(token[place : place + 4], "little")
        value = (value ^ word) * 0x9E3779B1 & 0xFFFFFFFF
        value ^= value >> 15
    return value
