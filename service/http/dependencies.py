"""Provides FastAPI's routes with the service of their application, and with whole bodies."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.core.call import get_call
from service.http.body.request_body import RequestBody, collect
from service.http.streaming_response import check_length
from service.operations.context import Service


async def get_service(request: Request) -> Service:
    """Return the service of a request's application."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


async def read_whole_body(
    request: Request, max_bytes: int | None = None, setting: str = "max_body_bytes"
) -> bytes:
    """Read the body of a request, and decompress it as its Content-Encoding says.

    Args:
        request: the request.
        max_bytes: the maximum number of decompressed bytes; None: the service's `max_body_bytes`.
        setting: the name of the setting for this limit, for the refusal.

    Raises:
        UnsupportedFormat: the encoding is not supported.
        BadBody: the body is not valid in its encoding, or ends too early.
        TooLarge: the body is longer than `max_bytes`.
        ClientGone: the client disconnected before the end of the body.
    """
    if max_bytes is None:
        service: Service = request.app.state.service
        max_bytes = service.settings.max_body_bytes
    call = get_call(request.scope)
    check_length(call.content_length, max_bytes, setting)
    body = RequestBody(request.receive, call.encoding, max_bytes, request.scope, setting=setting)
    return bytes(await collect(body, call.content_length))
