"""Declines offers to speak HTTP/2, so that they are answered in HTTP/1.1, their body included.

Java's HttpClient and ``curl --http2`` send ``Upgrade: h2c`` with every first request. The parser
takes such a head for the end of HTTP/1.1, so that the body would be lost and whatever follows be
nonsense. The offer may be declined by taking no notice of it (RFC 9110, section 7.8): the request
is given to a new parser without it.
"""

from __future__ import annotations

from collections.abc import Iterable

import httptools


class UpgradeFilter:
    """Writes requests that make an offer again without it."""

    def __init__(self) -> None:
        self._latest = b""
        self._again = b""

    def begin(self, data: bytes) -> None:
        """Note what is given to the parser."""
        self._latest = data
        self._again = b""

    def take_rest(self) -> bytes:
        """Return what has to be given to the parser next; b"" where nothing was declined."""
        rest = self._again
        self._latest = b""
        self._again = b""
        return rest

    @staticmethod
    def is_offer(parser: httptools.HttpRequestParser) -> bool:
        """Whether the head that was read offers another protocol; CONNECT has no other way."""
        return bool(parser.should_upgrade()) and parser.get_method() != b"CONNECT"

    def decline(
        self,
        parser: httptools.HttpRequestParser,
        url: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        end: int,
    ) -> None:
        """Write the request again, without its offer.

        Args:
            parser: has read the head.
            url: of the request.
            headers: its fields.
            end: where the head ends in what the parser was given.
        """
        method, version = parser.get_method(), parser.get_http_version().encode()
        kept = (b"%b: %b\r\n" % field for field in headers if field[0] != b"upgrade")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, b"".join(kept))
        self._again = head + self._latest[end:]
