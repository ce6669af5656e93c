"""The head of a request that a connection has sent before, told by its bytes and not parsed again.

Clients that keep a connection send the same head again and again; only the length of the body, and
the body, are others:

    POST /v1/encode HTTP/1.1 ... Content-Length: │ 231 │ ...  │ {"vocabulary":"gpt2", ...
    └──────────────── before ───────────────────┘      └ after ┘ body, exactly so long

Equal bytes mean what they meant before, so everything that was found out about the first one holds
as long as the keys stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.http.connection.inline_call import InlineCall

LENGTH_FIELD = b"\r\ncontent-length:"
# What says how long a body is in another way, and what is another one in each request.
NEVER = (b"transfer-encoding", b"x-request-id", b"traceparent", b"tracestate")
MAX_DIGITS = 5
MAX_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RepeatedHead:
    """A head but for the number that is the length of its body.

    Attributes:
        before, after: its bytes on either side of that number.
    """

    before: bytes
    after: bytes

    @classmethod
    def read(cls, data: bytes) -> RepeatedHead | None:
        """Read the head of a whole request; None where it is not plainly one request."""
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
        lower = data[:end].lower()
        place = lower.find(LENGTH_FIELD)
        if end < 4 or lower.count(LENGTH_FIELD) != 1 or any(field in lower for field in NEVER):
            return None
        begin = place + len(LENGTH_FIELD)
        begin += data[begin : begin + 1] == b" "
        head = cls(data[:begin], data[data.index(b"\r", begin) : end])
        return head if head.find_body(data) is not None else None

    def find_body(self, data: bytes) -> bytes | None:
        """Return the body, where the data are this head with a body of just its length."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(b"\r", begin, begin + MAX_DIGITS + 1)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        body = data[end + len(self.after) :]
        return body if len(body) == int(digits) else None


class HeadCache:
    """The head with which a connection's last parsed inline call began.

    Attributes:
        first: the call that had the head; None: there is no head yet.
    """

    __slots__ = ("_head", "_keys", "first")

    def __init__(self) -> None:
        self.first: InlineCall | None = None
        self._head: RepeatedHead | None = None
        self._keys = 0

    def remember(self, data: bytes, call: InlineCall, keys: int) -> None:
        """Keep the head of a call, where the data are this one request.

        Args:
            data: what was received.
            call: what the parser made of it.
            keys: the generation of the guard's keys.
        """
        head = RepeatedHead.read(data)
        if head is not None and head.find_body(data) == bytes(call.body):
            self.first = call
            self._head = head
            self._keys = keys

    def find_body(self, data: bytes, keys: int) -> bytes | None:
        """Return the body of a request that has the head; None where it has another one."""
        if self._head is None or keys != self._keys:
            return None
        return self._head.find_body(data)
