"""Writes the answers of inline calls: head and body in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol

from uvicorn.server import ServerState

from service.core.call import Call
from service.core.context_vars import REQUEST_ID
from service.core.problem_details import as_service_error, problem
from service.http.asgi_fast_path import JSON_TYPE
from service.observability.request_observer import RequestObserver

Fields = Sequence[tuple[bytes, bytes]]
CLOSE = (b"connection", b"close")


class Answerable(Protocol):
    """A request on a connection that a writer answers."""

    call: Call
    path: str
    keep_alive: bool
    response_complete: bool


class AnswerHead:
    """The begin of every JSON answer, made anew when uvicorn's fields, such as the date, change."""

    def __init__(self) -> None:
        self._fields: Fields = ()
        self._head = b""

    def get(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        """Return the head with these fields of uvicorn's."""
        if fields is not self._fields:
            self._fields = fields
            self._head = format_head(200, (*fields, JSON_TYPE))
        return self._head


class ResponseWriter:
    """Writes answers to one connection.

    Args:
        transport: the connection.
        server_state: has the fields that uvicorn puts into each head.
        observer: notes each answered request.
        answer_head: the begin of answers, which all connections share.
        on_complete: called when an answer has been written.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        server_state: ServerState,
        observer: RequestObserver,
        answer_head: AnswerHead,
        on_complete: Callable[[], None],
    ) -> None:
        self.observer = observer
        self._transport = transport
        self._server_state = server_state
        self._answer_head = answer_head
        self._on_complete = on_complete

    def answer(self, request: Answerable, body: bytes) -> None:
        """Write an answer."""
        head = self._answer_head.get(self._server_state.default_headers)
        self._write(request, 200, head, body)

    def refuse(self, request: Answerable, error: Exception) -> None:
        """Write a refusal."""
        token = REQUEST_ID.set(request.call.request_id.decode())
        refusal = as_service_error(error)
        REQUEST_ID.reset(token)
        request.call.refusal = refusal.code
        status, headers, body = problem(refusal)
        own = [field for field in headers if field[0] != b"content-length"]
        head = format_head(status, (*self._server_state.default_headers, *own))
        self._write(request, status, head, body)

    def _write(self, request: Answerable, status: int, head: bytes, body: bytes) -> None:
        own = b"".join(
            [b"%b: %b\r\n" % field for field in self.observer.answer_headers(request.call)]
        )
        if not request.keep_alive:
            own += b"%b: %b\r\n" % CLOSE
        self._transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, own, len(body), body))
        request.response_complete = True
        if not request.keep_alive:
            self._transport.close()
        self._on_complete()
        self.observer.finish(request.call, request.path, status)


def format_head(status: int, fields: Fields) -> bytes:
    """Write the first line of an answer and its fields, but for its length."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return b"".join((line, *(b"%b: %b\r\n" % field for field in fields)))
