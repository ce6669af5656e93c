"""Takes one list of objects out of a body of JSON, without reading its elements.

A long chat's messages are read where its template runs. Whatever is unusual, such as a key that
comes twice or an element that is no object, is not taken out: the whole body is read then. The
bytes of an element may still be no JSON.
"""

from __future__ import annotations

from typing import NamedTuple

try:
    from service.core import _json_elements as native
except ImportError:
    native = None  # type: ignore[assignment]

STANDING = b"[{}]"  # In place of the list: a list that is not empty.


class RawList(NamedTuple):
    """A list of at least one object, as JSON.

    Attributes:
        body: the body that has the list.
        begin, end: where the list begins and ends in the body.
        places: uint32, begin and end of each element, counted from `begin`.
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
        """The body with STANDING in place of the list."""
        return self.body[: self.begin] + STANDING + self.body[self.end :]


def find_list(body: bytes, key: bytes) -> RawList | None:
    """Find the list that is the value of a key of a JSON object; None: read the whole body.

    Without the C++ extension no list is found.
    """
    found = None if native is None else native.find_elements(body, key)
    return None if found is None else RawList(body, *found)
