"""Limits how slowly the body of a request may come.

A body has a credit of `stream_idle_timeout_s`. It shrinks while the service waits for the client,
grows with each byte that comes, and is full again when a part of the answer is sent, so that a
client may wait for an answer in the middle of its body. Time in which nobody waits does not count.
"""

from __future__ import annotations

from service.core.errors import BodyTimeout
from service.core.settings import Settings

PACE_KEY = "warptok.body_pace"
"""The key of an ASGI scope under which the pace of its body is."""
SMALLEST_SHARE = 0.01  # Below this share of the full credit a body is too slow.


class BodyPace:
    """The credit of one body.

    Args:
        settings: has the full credit in seconds, and the bytes that are worth one second.

    Attributes:
        credit_s: the most seconds to wait for the next bytes.
    """

    __slots__ = ("_full_s", "_rate", "credit_s")

    def __init__(self, settings: Settings) -> None:
        self._full_s = settings.stream_idle_timeout_s
        self._rate = settings.min_body_bytes_per_s
        self.credit_s = self._full_s

    @property
    def is_too_slow(self) -> bool:
        """Whether the credit is used up."""
        return self.credit_s <= SMALLEST_SHARE * self._full_s

    def add(self, num_bytes: int, waited_s: float) -> None:
        """Note that `num_bytes` came after a wait."""
        gained_s = num_bytes / self._rate if self._rate else self._full_s
        self.credit_s = min(self._full_s, self.credit_s - waited_s + gained_s)

    def renew(self) -> None:
        """Fill the credit."""
        self.credit_s = self._full_s

    def make_refusal(self) -> BodyTimeout:
        """Make the refusal of a body that is too slow."""
        return BodyTimeout(
            f"nothing came for {self._full_s} s (stream_idle_timeout_s), or less than "
            f"{self._rate} bytes in a second (min_body_bytes_per_s)"
        )
