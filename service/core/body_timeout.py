"""The refusal of a request that has begun and does not go on."""

from __future__ import annotations

from service.core.errors import ServiceError


class BodyTimeout(ServiceError):
    """Nothing came for too long; nobody knows where the next request would begin."""

    status, code, headers = 408, "body_timeout", ((b"connection", b"close"),)


def nothing_came(idle_s: float | None) -> BodyTimeout:
    """The refusal after so many seconds."""
    return BodyTimeout(f"nothing came for {idle_s} s (stream_idle_timeout_s)")
