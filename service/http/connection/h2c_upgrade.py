"""A client that would rather speak HTTP/2 is answered in HTTP/1.1, its body included.

Java's HttpClient and ``curl --http2`` send ``Upgrade: h2c`` with every first request. The parser
takes such a head for the end of HTTP/1.1, so that the body would be lost and whatever follows be
nonsense. The offer may be declined by taking no notice of it (RFC 9110, section 7.8): the request
is given to a new parser without it.
"""

from __future__ import annotations

import sys

from service.http.connection.idle_timeouts import StallProtocol


class DecliningProtocol(StallProtocol):
    """uvicorn's protocol that declines to speak another one.

    Attributes:
        latest: what the parser has.
        again: what it has to be given after that.
    """

    latest = again = b""

    def data_received(self, data: bytes) -> None:
        """Read requests; one after another where several make the offer, of which any may come."""
        while data:
            self.latest, self.again = data, b""
            super().data_received(data)
            data = self.again
        self.latest = self.again = b""

    @property
    def is_declined(self) -> bool:
        """Whether the head that was read offers another protocol; CONNECT has no other way."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def on_headers_complete(self) -> None:
        """Begin a request, unless it begins anew without its offer."""
        if not self.is_declined:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        if not self.is_declined:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn as it handles the parser's HttpParserUpgrade(end of the head)."""
        error = sys.exception()
        if error is None or not self.is_declined:
            return
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        kept = (b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(kept))
        self.parser = type(self.parser)(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.again = head + self.latest[error.args[0] :]
