"""Parses JSON that contains integers beyond 64 bits, with the same result as Python's `json`.

orjson is much faster, but converts such integers to floats, which a chat template would then write:

    12345678901234567890123  →  1.2345678901234568e+22

Therefore a body that may contain such an integer is parsed a second time by `json`. For most bodies
a look at every fifth byte is enough to exclude this.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import orjson

NUM_DIGITS = 20  # An integer with fewer digits fits into 64 bits, unless it is below -2**63.
SMALL = re.compile(rb"-9\d{18}")  # An integer that may be below -2**63.
NUM_SMALL_DIGITS = 19
STEP = 5
IS_DIGIT = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
RUN = b"0" * NUM_DIGITS
BEFORE_A_NUMBER = b"-:,[ \t\r\n"


def load_json(body: bytes) -> Any:
    """Parse JSON; integers keep their exact values.

    Raises:
        orjson.JSONDecodeError: the body is not JSON in UTF-8.
    """
    value = orjson.loads(body)
    if may_have_long_integer(body):
        with contextlib.suppress(RecursionError):  # json allows less nesting.
            value = json.loads(body)
    return value


def may_have_long_integer(body: bytes) -> bool:
    """Return whether JSON may contain an integer that does not fit into 64 bits."""
    sample = body[::STEP].translate(IS_DIGIT)
    if b"0" * (NUM_SMALL_DIGITS // STEP) not in sample:
        return False
    if SMALL.search(body):
        return True
    if b"0" * (NUM_DIGITS // STEP) not in sample:
        return False
    digits = body.translate(IS_DIGIT)
    place = digits.find(RUN)
    while place >= 0:
        if place == 0 or body[place - 1] in BEFORE_A_NUMBER:
            return True
        end = digits.find(b" ", place)
        place = digits.find(RUN, end) if end >= 0 else -1
    return False
