r"""Parses JSON in which a string contains half a surrogate pair, which is not a character.

JavaScript and Python create such strings when they cut a text inside an emoji, and write the half
as an escape. JSON's grammar allows such an escape, but UTF-8 cannot represent it. If a request sets
`"surrogates": "replace"`, each half becomes U+FFFD, as in tiktoken; otherwise the request is
refused.

    "a\ud83d"  →  "a\ufffd"         "\ud83d\ude42"  →  unchanged, as the pair is whole
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from service.core.errors import BadJson, LoneSurrogate

Surrogates = Literal["refuse", "replace"]
Value = TypeVar("Value")
# Whole pairs, halves, all other escapes (such as of a backslash), and halves as raw bytes.
ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\(u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."
    rb"|\xed([\xa0-\xbf][\x80-\xbf])",
    re.DOTALL,
)
HALF = re.compile("[\ud800-\udfff]")
OTHER_STARTS = {
    b"\xef\xbb\xbf": "begins with a byte-order mark (EF BB BF), which JSON has not",
    b"\xff\xfe": "is in UTF-16 or UTF-32; JSON is in UTF-8",
    b"\xfe\xff": "is in UTF-16; JSON is in UTF-8",
    b"\0": "is in UTF-16 or UTF-32; JSON is in UTF-8",
    b"\x1f\x8b": "is compressed by gzip; send it with Content-Encoding: gzip",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; send it with Content-Encoding: zstd",
}
"""The fault of an invalid body, by the bytes with which it begins."""
MAX_NAMED_BYTES = 1 << 20  # Searching a longer body would delay other requests.
REPLACED_ESCAPE = rb"\ufffd"
REPLACED = "\ufffd".encode()


def parse_json(parse: Callable[[bytes], Value], body: bytes) -> Value:
    """Parse a body; replace halves of surrogate pairs by U+FFFD if the body requests it.

    Args:
        parse: parses JSON; raises BadJson if the body is not JSON.
        body: the JSON.

    Raises:
        LoneSurrogate: a string contains half a pair, and the body does not request a replacement.
        ServiceError: `parse` raised it.
    """
    try:
        return parse(body)
    except BadJson:
        _refuse_encoding(body)
        place = _find_half(body)
        if place is None:
            raise
    value = parse(ESCAPES.sub(_replace, body))  # Places in messages stay correct.
    if _get_surrogates(value) == "replace":
        return value
    message = "a string has half a surrogate pair, which is not a character"
    if isinstance(value, dict) or hasattr(value, "surrogates"):
        message += '; with "surrogates": "replace" it becomes U+FFFD'
    raise LoneSurrogate(message, _name_place(body, place))


def _refuse_encoding(body: bytes) -> None:
    """Raise BadJson if an invalid body is in an encoding other than UTF-8."""
    starts = OTHER_STARTS | {body[:1] + b"\0": OTHER_STARTS[b"\xff\xfe"]}  # No byte order mark.
    for start, fault in starts.items():
        if body.startswith(start):
            raise BadJson(f"the body {fault}", "line 1 column 1")


def _name_place(body: bytes, place: int) -> str:
    """Return the JSON pointer of the string at a byte, or for long bodies line and column."""
    if len(body) <= MAX_NAMED_BYTES:
        try:
            value = json.loads(body.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):  # A later part is invalid.
            value = None
        pointer = next(_find_pointers(value), None)
        if pointer is not None:
            return pointer
    line = body.count(b"\n", 0, place) + 1
    column = place - body.rfind(b"\n", 0, place)
    return f"line {line} column {column}"


def _find_pointers(value: Any) -> Iterator[str]:
    """Yield the JSON pointer of each string with half a surrogate pair, in order."""
    waiting = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, dict):
            pairs = list(value.items())
        elif isinstance(value, list):
            pairs = list(enumerate(value))
        elif isinstance(value, str) and HALF.search(value):
            yield HALF.sub("\ufffd", pointer)  # Keys may contain halves as well.
            continue
        else:
            continue
        children = [
            (f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}", child)
            for key, child in pairs
        ]
        waiting += reversed(children)


def _get_surrogates(value: Any) -> Any:
    return value.get("surrogates") if isinstance(value, dict) else getattr(value, "surrogates", "")


def _find_half(body: bytes) -> int | None:
    """Return the position of the first half of a pair; None if there is none."""
    halves = (found.start() for found in ESCAPES.finditer(body) if found.lastindex)
    return next(halves, None)


def _replace(found: re.Match[bytes]) -> bytes:
    """Return the replacement of an escape: the escape itself, or U+FFFD as an escape."""
    if found.lastindex is None:
        return found[0]
    return REPLACED_ESCAPE if found.lastindex == 1 else REPLACED
