"""Declines offers to speak HTTP/2, so that requests with such an offer are answered in HTTP/1.1.

Java's HttpClient and ``curl --http2`` send ``Upgrade: h2c`` with every first request. The parser
stops after such a head, as if another protocol followed, and would not read the body. A server may
ignore the offer (RFC 9110, section 7.8): this module passes the request without the offer to a new
parser.
"""

from __future__ import annotations

from collections.abc import Iterable

import httptools


class UpgradeFilter:
    """Rewrites requests that offer an upgrade as requests without the offer."""

    def __init__(self) -> None:
        self._latest = b""
        self._rewritten = b""

    def begin(self, data: bytes) -> None:
        """Store the data that the parser reads next."""
        self._latest = data
        self._rewritten = b""

    def pop_rewritten(self) -> bytes:
        """Return the request without its offer and all later data; b"" if it had no offer."""
        rewritten = self._rewritten
        self._latest = b""
        self._rewritten = b""
        return rewritten

    @staticmethod
    def is_offer(parser: httptools.HttpRequestParser) -> bool:
        """Return whether the parsed head offers to switch to another protocol.

        The parser also reports the method CONNECT as a switch, but there it is not an offer.
        """
        return bool(parser.should_upgrade()) and parser.get_method() != b"CONNECT"

    def decline(
        self,
        parser: httptools.HttpRequestParser,
        url: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        end: int,
    ) -> None:
        """Rewrite the request without its offer to upgrade.

        Args:
            parser: the parser that has read the head.
            url: the URL of the request.
            headers: the header fields.
            end: the end of the head in the data that the parser received.
        """
        method, version = parser.get_method(), parser.get_http_version().encode()
        fields = [b"%b: %b\r\n" % (name, value) for name, value in headers if name != b"upgrade"]
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, b"".join(fields))
        self._rewritten = head + self._latest[end:]
