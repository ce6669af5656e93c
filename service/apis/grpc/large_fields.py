"""Reads and writes large bytes fields without protobuf, which copies them at least twice.

A message is a sequence of fields in any order; each field is a tag and a value. Therefore one field
can be extracted from a message, or prepended to it, without parsing the values of the other fields.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

VARINT = 0  # Wire types.
LENGTH_DELIMITED = 2
FIXED_BYTES = {1: 8, 5: 4}  # Sizes in bytes of the 64-bit and 32-bit wire types.


def cut_field(message: bytes, number: int) -> tuple[memoryview, bytes]:
    """Split a message into a view of one bytes field, and the message without this field.

    Example: splitting 12 02 AB CD 08 01 at field 2 returns AB CD and 08 01.

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
    """Prepend a bytes field to a serialized message; the bytes are copied once.

    Args:
        number: the number of the field.
        value: any contiguous buffer; an empty buffer adds no field.
        message: the other fields, serialized.
    """
    view = memoryview(value).cast("B")
    head = bytes([number << 3 | LENGTH_DELIMITED]) + _write_varint(len(view))
    return b"".join((head, view, message)) if len(view) else message


def _read_varint(view: memoryview, place: int) -> tuple[int, int]:
    """Read the number at a position; return it, and the position after it."""
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
