"""Declines offers to speak HTTP/2, so that the requests that make them are answered in HTTP/1.1.

Java's HttpClient and ``curl --http2`` send ``Upgrade: h2c`` with every first request. The parser
stops at such a head, as if another protocol followed, and would not read the body. A server may
ignore the offer (RFC 9110, section 7.8): here a new parser gets the request without it.
"""

from __future__ import annotations

from collections.abc import Iterable

import httptools


class UpgradeFilter:
    """Writes requests that offer an upgrade again, without the offer."""

    def __init__(self) -> None:
        self._latest = b""
        self._rewritten = b""

    def begin(self, data: bytes) -> None:
        """Note the data that the parser gets next."""
        self._latest = data
        self._rewritten = b""

    def pop_rewritten(self) -> bytes:
        """Return a request without its offer, and the data behind it; b"" if there was no offer."""
        rewritten = self._rewritten
        self._latest = b""
        self._rewritten = b""
        return rewritten

    @staticmethod
    def is_offer(parser: httptools.HttpRequestParser) -> bool:
        """Return whether the parsed head offers another protocol, which CONNECT requires."""
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
            parser: the parser that has read the head.
            url: the URL of the request.
            headers: the fields of the head.
            end: the end of the head in the data that the parser got.
        """
        method, version = parser.get_method(), parser.get_http_version().encode()
        fields = [b"%b: %b\r\n" % (name, value) for name, value in headers if name != b"upgrade"]
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, b"".join(fields))
        self._rewritten = head + self._latest[end:]
