"""Limits how slowly the body of a request may arrive.

A body has a credit of `stream_idle_timeout_s` seconds. The credit decreases while the service waits
for the client, increases with each byte that arrives, and is restored when a part of the answer is
sent, since a client may wait for an answer in the middle of its body. Time in which the service
does not wait does not count. In addition, the whole body must arrive before the request's deadline
(X-Request-Timeout-Ms).
"""

from __future__ import annotations

from time import perf_counter

from service.core.call import Call
from service.core.errors import BodyTimeout, ServiceError, make_late_refusal
from service.core.settings import Settings

PACE_KEY = "warptok.body_pace"
"""The key of an ASGI scope under which the pace of its body is stored."""
EARLY_S = 0.001  # A timer may expire this much too early.
SMALLEST_SHARE = 0.01  # With less than this share of the full credit a body is too slow.


class BodyPace:
    """The remaining credit of one body, and the deadline of its request.

    Args:
        settings: contain the full credit in seconds, and how many bytes add one second.
        call: contains the time at which the request ends.

    Attributes:
        credit_s: the remaining credit in seconds.
    """

    __slots__ = ("_call", "_full_s", "_rate", "credit_s")

    def __init__(self, settings: Settings, call: Call) -> None:
        self._full_s = settings.stream_idle_timeout_s
        self._rate = settings.min_body_bytes_per_s
        self._call = call
        self.credit_s = self._full_s

    @property
    def wait_s(self) -> float:
        """The maximum number of seconds to wait for the next bytes."""
        return max(0.0, min(self.credit_s, self._call.ends_at - perf_counter()))

    @property
    def is_too_slow(self) -> bool:
        """Whether the credit is exhausted or the deadline of the request has passed."""
        return self.credit_s <= SMALLEST_SHARE * self._full_s or self._is_late

    @property
    def _is_late(self) -> bool:
        return perf_counter() > self._call.ends_at - EARLY_S

    def add(self, num_bytes: int, waited_s: float) -> None:
        """Record that `num_bytes` arrived after a wait of `waited_s` seconds."""
        gained_s = num_bytes / self._rate if self._rate else self._full_s
        self.credit_s = min(self._full_s, self.credit_s - waited_s + gained_s)

    def renew(self) -> None:
        """Restore the full credit."""
        self.credit_s = self._full_s

    def make_refusal(self) -> ServiceError:
        """Return the refusal of a body that arrives too slowly."""
        if self._is_late:
            return make_late_refusal("the body had come")
        return BodyTimeout(
            f"nothing came for {self._full_s} s (stream_idle_timeout_s), or less than "
            f"{self._rate} bytes in a second (min_body_bytes_per_s)"
        )
