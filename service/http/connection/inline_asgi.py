"""The short way of inference: a small request is answered without uvicorn's cycle and FastAPI.

    headers complete ─ POST /v2/models/{model}/infer, plain, small? ─no──► uvicorn ─► oip_first
                         │yes: InferCycle takes the body's place in the connection
    message complete ─ Infer, as on the long way ─► head and body, if it is small, in one write

Between two regions of a device that is idle until the next call, such a request costs the kernels'
own time once more and little else.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from service.apis.oip.http_infer import Infer
from service.apis.oip.oip_first import ROUTE
from service.core.context_vars import CLIENT, REQUEST_ID
from service.core.errors import ServiceError
from service.core.request_head import IN_SCOPE
from service.http.refusals import refused
from service.observability.request_observer import CLIENT_CLOSED

if TYPE_CHECKING:
    from starlette.types import Message

    from service.core.call import Call
    from service.http.connection.protocol import HotProtocol

INFER = re.compile(rb"/v2/models/([\w.-]+)/infer", re.ASCII)
WHOLE_BYTES = 1 << 16  # A larger body is not copied behind its head.
Fields = list[tuple[bytes, bytes]]


@lru_cache(256)
def model_of(url: bytes) -> str:
    """The model of an inference request by its URL; "" where that goes the long way."""
    found = INFER.fullmatch(url)
    return "" if found is None else found[1].decode()


class InferCycle:
    """One inference request on a connection: a request to uvicorn, an ASGI connection to `Infer`.

    uvicorn reads and sets `body`, `more_body`, `keep_alive`, `disconnected` and
    `response_complete`, and calls ``message_event.set()`` when something has changed.
    """

    path = ROUTE.path  # The metrics count under its template.

    def __init__(
        self, model: str, headers: Fields, call: Call, client: str, protocol: HotProtocol
    ) -> None:
        self.model, self.headers, self.call, self.client = model, headers, call, client
        self.protocol, self.message_event = protocol, asyncio.Event()
        self.body = bytearray()
        self.more_body = self.keep_alive = True
        self.disconnected = self.response_complete = self.is_read = False
        self.status, self.head = 500, b""
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The body is whole."""
        self.protocol.service.metrics.received()
        self.message_event.clear()
        self.task = asyncio.ensure_future(self._answer())

    async def _answer(self) -> None:
        service = self.protocol.service
        CLIENT.set(self.client)
        REQUEST_ID.set(self.call.request_id.decode())
        scope = {"type": "http", "headers": self.headers, IN_SCOPE: self.call}
        try:
            service.guard.limits.admit(self.client)
        except ServiceError as error:
            self.set_exception(error)
            return
        try:
            await Infer(service, scope, self.model, "")(scope, self._receive, self._send)
        finally:
            if not self.response_complete:
                self.protocol.transport.close()  # A part of an answer is none.
            status = CLIENT_CLOSED if self.call.is_gone else self.status
            service.observer.finish(self.call, self.path, status)

    def set_exception(self, error: ServiceError) -> None:
        """Refuse it before `Infer` has seen it."""
        refusal = refused(self.path, error)
        self.call.refusal, self.status = refusal.code, refusal.status_code
        self.protocol.transport.write(self._head(refusal.raw_headers) + bytes(refusal.body))
        self._complete()
        self.protocol.service.observer.finish(self.call, self.path, self.status)

    async def _receive(self) -> Message:
        """The body; then, once it has, that the client has left."""
        if not self.is_read:
            self.is_read = True
            return {"type": "http.request", "body": bytes(self.body), "more_body": False}
        while not (self.disconnected or self.response_complete):
            await self.message_event.wait()
            self.message_event.clear()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Write the head, together with a small body."""
        flow, transport = self.protocol.flow, self.protocol.transport
        if flow.write_paused and not self.disconnected:
            await flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.head = self._head(message["headers"])
            return
        head, body, self.head = self.head, message.get("body", b""), b""
        if head and len(body) > WHOLE_BYTES:
            transport.write(head)
            head = b""
        transport.write(head + body if head else body)
        if not message.get("more_body", False):
            self._complete()

    def _head(self, fields: Fields) -> bytes:
        protocol = self.protocol
        own = protocol.service.observer.answer_headers(self.call)
        kept = [] if self.keep_alive else [(b"connection", b"close")]
        return protocol.head(self.status, (*fields, *own, *kept))

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.protocol.transport.close()
        self.protocol.on_unseen_response_complete()
