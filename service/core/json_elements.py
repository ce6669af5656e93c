"""Extracts one list of objects from a JSON body without parsing its elements.

The messages of a long chat are parsed only in the process that renders its template. A list is not
extracted if the body is unusual, for example if a key is repeated or an element is not an object;
the caller then parses the whole body. The bytes of an extracted element may still be invalid JSON.
"""

from __future__ import annotations

from typing import NamedTuple

try:
    from service.core import _json_elements as native
except ImportError:
    native = None  # type: ignore[assignment]

STANDING = b"[{}]"  # Replaces the list; not empty, so that validation passes.


class RawList(NamedTuple):
    """An unparsed JSON list of at least one object.

    Attributes:
        body: the body that contains the list.
        begin, end: the start and the end of the list in the body.
        places: uint32, the start and the end of each element, relative to `begin`.
    """

    body: bytes
    begin: int
    end: int
    places: bytes

    @property
    def json(self) -> memoryview:
        """The list as JSON."""
        return memoryview(self.body)[self.begin : self.end]

    @property
    def rest(self) -> bytes:
        """The body with the list replaced by STANDING."""
        return self.body[: self.begin] + STANDING + self.body[self.end :]


def find_list(body: bytes, key: bytes) -> RawList | None:
    """Return the list that is the value of a key of a JSON object; None if it cannot be extracted.

    Without the C++ extension the result is always None. The caller then parses the whole body.
    """
    found = None if native is None else native.find_elements(body, key)
    return None if found is None else RawList(body, *found)
