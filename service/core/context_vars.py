"""What belongs to the request that is being answered, wherever its code runs."""

from __future__ import annotations

from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request."""

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The name of the key that the request came with; "" where there are no keys."""
