"""Context variables of the request that the current task answers."""

from __future__ import annotations

from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request."""

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The name of the request's key; "" if there are no keys."""
