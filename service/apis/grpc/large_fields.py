"""Reads and writes large fields of bytes without protobuf, which copies them twice or more.

A message is a sequence of fields in any order, each a tag and a value. So one field can be cut out
of a message, or put in front of it, without parsing the values of the others.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

VARINT = 0  # Wire types.
LENGTH_DELIMITED = 2
FIXED_BYTES = {1: 8, 5: 4}  # The sizes of the wire types of 64 and 32 bits.


def cut_field(message: bytes, number: int) -> tuple[memoryview, bytes]:
    """Cut a bytes field out of a message; return a view of it, and the message without it.

    Example: 12 02 AB CD 08 01 cut at field 2 gives AB CD and 08 01.

    Raises:
        DecodeError: the bytes are not a valid message.
    """
    view = memoryview(message)
    value = view[:0]
    rest: list[memoryview] = []
    place = 0
    while place < len(view):
        begin = place
        tag, place = _read_varint(view, place)
        wire_type = tag & 7
        if wire_type == LENGTH_DELIMITED:
            size, place = _read_varint(view, place)
            place += size
        elif wire_type == VARINT:
            _, place = _read_varint(view, place)
        elif wire_type in FIXED_BYTES:
            place += FIXED_BYTES[wire_type]
        else:
            raise DecodeError(f"wire type {wire_type}")
        if place > len(view):
            raise DecodeError("the message ends inside of a field")
        if tag == number << 3 | LENGTH_DELIMITED:
            value = view[place - size : place]
        else:
            rest.append(view[begin:place])
    return value, b"".join(rest)


def with_field(number: int, value: Any, message: bytes) -> bytes:
    """Put a bytes field in front of a message; its bytes are copied once.

    Args:
        number: the number of the field.
        value: any contiguous buffer; an empty one adds no field.
        message: the other fields, serialized.
    """
    view = memoryview(value).cast("B")
    head = bytes([number << 3 | LENGTH_DELIMITED]) + _write_varint(len(view))
    return b"".join((head, view, message)) if len(view) else message


def _read_varint(view: memoryview, place: int) -> tuple[int, int]:
    """Read the number at a place; return it, and the place behind it."""
    value = shift = 0
    while True:
        if place >= len(view) or shift > 63:
            raise DecodeError("the message ends inside of a number")
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
