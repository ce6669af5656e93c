"""Creates JSON responses with orjson."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response


def make_json_response(
    value: Any, headers: dict[str, str] | None = None, status: int = 200
) -> Response:
    """Return a response that contains a value as JSON."""
    return Response(orjson.dumps(value), status, headers, "application/json")
