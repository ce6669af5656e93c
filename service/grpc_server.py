"""gRPC beside HTTP: the same process, loop, batcher and limits.

grpc.aio ─► method ─► function of the call ─► batcher
└ deadlines, refusals, metrics: here, once for all calls
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from service import grpc_tokenizer as tokenizer
from service import grpc_vocabularies as vocabularies
from service import oip_grpc
from service.access import key_of, scope_of_method
from service.calls import Call
from service.errors import Draining, as_service_error
from service.grpc_errors import abort
from service.grpc_values import TextsRequest
from service.health_routes import readiness
from service.hot_routes import admit
from service.protos import inference_pb2
from service.protos import warptok_pb2 as pb
from service.state import Service
from service.work import CLIENT

__all__ = ["GrpcServer"]

logger = logging.getLogger(__name__)
NAME = "warptok.v1.Tokenizer"
HEALTH_PERIOD_S = 0.5
Unary = Callable[[Service, Call, Any], Awaitable[Any]]
Stream = Callable[[Service, Call, Any], AsyncIterator[Any]]

PARSERS: dict[str, Callable[[bytes], Any]] = {
    pb.EncodeBatchRequest.DESCRIPTOR.full_name: TextsRequest.parse,
}
"""Messages that are not read by protobuf alone."""
UNARY: dict[str, Unary] = {
    "Encode": tokenizer.encode,
    "EncodeBatch": tokenizer.encode_batch,
    "Count": tokenizer.count,
    "Decode": tokenizer.decode,
    "DecodeBatch": tokenizer.decode_batch,
    "Windows": tokenizer.windows,
    "ListVocabularies": vocabularies.list_vocabularies,
    "GetVocabulary": vocabularies.get_vocabulary,
    "DeleteVocabulary": vocabularies.delete_vocabulary,
}


class GrpcServer:
    """A gRPC server of one service.

    Attributes:
        port: the TCP port it listens on, once it is started.
    """

    def __init__(self, service: Service) -> None:
        self.service, self.port = service, 0
        limit = service.settings.max_body_bytes
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ]
        )
        self._health = HealthServicer()
        self._watching: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be used.
        """
        self._server.add_generic_rpc_handlers(self._handlers())
        add_HealthServicer_to_server(self._health, self._server)
        names = (NAME, oip_grpc.NAME, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), self._server)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {address}: {error}") from error
        await self._server.start()
        self._watching = asyncio.create_task(self._watch_health())

    async def stop(self, grace_s: float) -> None:
        """Say that nothing is served, let calls that run finish, cancel them after that."""
        if self._watching is not None:
            self._watching.cancel()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    async def _watch_health(self) -> None:
        """grpc.health.v1 says what /readyz says, for the server and for the service by name."""
        states = health_pb2.HealthCheckResponse
        while True:
            state = states.NOT_SERVING if readiness(self.service) else states.SERVING
            for name in ("", NAME, oip_grpc.NAME):
                await self._health.set(name, state)
            await asyncio.sleep(HEALTH_PERIOD_S)

    def _handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """All methods of both services."""
        unary = {**UNARY, "PutVocabulary": vocabularies.put_vocabulary}
        own = self._service(NAME, pb, unary, {"EncodeStream": tokenizer.encode_stream})
        streams = {"ModelStreamInfer": oip_grpc.stream_infer}
        return own, self._service(oip_grpc.NAME, inference_pb2, oip_grpc.UNARY, streams)

    def _service(
        self, name: str, messages: Any, unary: Mapping[str, Unary], streams: Mapping[str, Stream]
    ) -> grpc.GenericRpcHandler:
        """The methods of a service by name, each with its messages."""
        described = messages.DESCRIPTOR.services_by_name[name.rsplit(".", 1)[1]]
        handlers = {}
        for method in described.methods:
            parse = PARSERS.get(method.input_type.full_name)
            parse = parse or getattr(messages, method.input_type.name).FromString
            path = f"/{name}/{method.name}"
            if method.name in streams:
                answer = self._stream(path, streams[method.name])
                handler = grpc.stream_stream_rpc_method_handler(answer, parse, _to_bytes)
            elif method.client_streaming:
                answer = self._unary(path, unary[method.name])
                handler = grpc.stream_unary_rpc_method_handler(answer, parse, _to_bytes)
            else:
                answer = self._unary(path, unary[method.name])
                handler = grpc.unary_unary_rpc_method_handler(answer, parse, _to_bytes)
            handlers[method.name] = handler
        return grpc.method_handlers_generic_handler(name, handlers)

    def _unary(self, path: str, function: Unary) -> Any:
        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
            begin = perf_counter()
            try:
                response = await function(self.service, self._call(context, path), request)
            except Exception as error:
                self._count(path, as_service_error(error).status, begin)
                await abort(context, error)
            self._count(path, 200, begin)
            return response

        return answer

    def _stream(self, path: str, function: Stream) -> Any:
        async def answer(requests: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            begin = perf_counter()
            try:
                async for response in function(self.service, self._call(context, path), requests):
                    yield response
            except Exception as error:
                self._count(path, as_service_error(error).status, begin)
                await abort(context, error)
            self._count(path, 200, begin)

        return answer

    def _call(self, context: grpc.aio.ServicerContext, path: str) -> Call:
        """The connection's side of a call.

        Raises:
            ServiceError: the service is stopping, or the key may not do this.
        """
        if self.service.draining:
            raise Draining("the service is stopping; ask another replica")
        metadata = context.invocation_metadata() or ()
        pairs = [(name.encode(), _bytes(value)) for name, value in metadata]
        guard, key, needed = self.service.guard, key_of(pairs), scope_of_method(path)
        if needed is not None:
            client = guard.check(key, needed)
            admit(self.service, client)
            CLIENT.set(client)
        return Call(timeout_s=context.time_remaining(), may=partial(guard.check, key))

    def _count(self, path: str, status: int, begin: float) -> None:
        self.service.metrics.requests(path, status, perf_counter() - begin)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _to_bytes(message: Any) -> bytes:
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data
