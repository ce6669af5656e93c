"""Reads JSON whose integers may be larger than 64 bits, as Python's json does.

orjson, which is much faster, makes floats of them, and a chat template would write those:

    12345678901234567890123  →  1.2345678901234568e+22

So a body that may have such a number is read once more. Most bodies are known to have none from
every fifth byte.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import orjson

NUM_DIGITS = 20  # An integer with fewer digits fits into 64 bits.
STEP = 5
IS_DIGIT = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
RUN = b"0" * NUM_DIGITS
BEFORE_A_NUMBER = b"-:,[ \t\r\n"


def load_json(body: bytes) -> Any:
    """Read JSON.

    Raises:
        orjson.JSONDecodeError: it is not JSON in UTF-8.
    """
    value = orjson.loads(body)
    if may_have_long_integer(body):
        with contextlib.suppress(RecursionError):  # Python reads less depth; the value stays.
            value = json.loads(body)
    return value


def may_have_long_integer(body: bytes) -> bool:
    """Return whether a number of at least `NUM_DIGITS` digits, or such a text, is in JSON."""
    if b"0" * (NUM_DIGITS // STEP) not in body[::STEP].translate(IS_DIGIT):
        return False
    digits = body.translate(IS_DIGIT)
    place = digits.find(RUN)
    while place >= 0:
        if place == 0 or body[place - 1] in BEFORE_A_NUMBER:
            return True
        end = digits.find(b" ", place)
        place = digits.find(RUN, end) if end >= 0 else -1
    return False
