r"""Reads JSON in which a string has half a surrogate pair, which is no character.

JavaScript and Python make such strings when they cut a text inside an emoji, and write them as an
escape without its other half. JSON's grammar allows it, and UTF-8 cannot write it. A request with
`"surrogates": "replace"` gets U+FFFD for each, as with tiktoken; others are refused by this name.

    "a\ud83d"  →  "a\ufffd"         "\ud83d\ude42"  →  the same, a whole pair
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from service.core.errors import BadJson, LoneSurrogate

Surrogates = Literal["refuse", "replace"]
Value = TypeVar("Value")
# A whole pair, half of one, another escape (of a backslash, too), half of one as raw bytes.
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
    b"\x1f\x8b": "is packed by gzip; send it with Content-Encoding: gzip",
    b"\x28\xb5\x2f\xfd": "is packed by zstd; send it with Content-Encoding: zstd",
}
"""What is wrong with a body that begins with some bytes, and is no JSON."""
MAX_NAMED_BYTES = 1 << 20  # Finding the string in a longer body would hold up other requests.
REPLACED_ESCAPE = rb"\ufffd"
REPLACED = "\ufffd".encode()


def parse_json(parse: Callable[[bytes], Value], body: bytes) -> Value:
    """Parse a body; replace halves of surrogate pairs by U+FFFD if it requests that.

    Args:
        parse: parses JSON; raises BadJson if the body is not JSON.
        body: the JSON.

    Raises:
        LoneSurrogate: a string has half a pair, and the body does not request to replace it.
        ServiceError: as `parse`.
    """
    try:
        return parse(body)
    except BadJson:
        _refuse_encoding(body)
        place = _find_half(body)
        if place is None:
            raise
    value = parse(ESCAPES.sub(_replace, body))  # The places of other faults stay the same.
    if _get_surrogates(value) == "replace":
        return value
    message = "a string has half a surrogate pair, which is no character"
    if isinstance(value, dict) or hasattr(value, "surrogates"):
        message += '; with "surrogates": "replace" it becomes U+FFFD'
    raise LoneSurrogate(message, _name_place(body, place))


def _refuse_encoding(body: bytes) -> None:
    """Raise BadJson if a body that is no JSON is in another encoding than UTF-8."""
    starts = OTHER_STARTS | {body[:1] + b"\0": OTHER_STARTS[b"\xff\xfe"]}  # Without a mark.
    for start, fault in starts.items():
        if body.startswith(start):
            raise BadJson(f"the body {fault}", "line 1 column 1")


def _name_place(body: bytes, place: int) -> str:
    """Name the place of a byte: the JSON pointer of its string, or its line in a long body."""
    if len(body) <= MAX_NAMED_BYTES:
        try:
            value = json.loads(body.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):  # Another fault, behind a string that is read.
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
            yield HALF.sub("\ufffd", pointer)  # A key may have one, too.
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
    """Find the place of the first half of a pair; None if there is none."""
    halves = (found.start() for found in ESCAPES.finditer(body) if found.lastindex)
    return next(halves, None)


def _replace(found: re.Match[bytes]) -> bytes:
    """Return the replacement of an escape: itself, or an escaped U+FFFD of the same length."""
    if found.lastindex is None:
        return found[0]
    return REPLACED_ESCAPE if found.lastindex == 1 else REPLACED
