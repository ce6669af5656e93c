"""Serves gRPC in the process and event loop that also serve HTTP.

grpc.aio ─► handler of the method ─► function of the call ─► batcher
            └ implements deadlines, refusals and metrics for all calls
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from service.apis.grpc import tokenizer, vocabularies
from service.apis.grpc.conversions import TextsRequest
from service.apis.grpc.ports import make_server, open_address, open_port, send_goaway
from service.apis.grpc.status import abort
from service.apis.oip import grpc_service
from service.apis.oip.state import OipState
from service.core.call import CLIENT_CLOSED, Call, read_call
from service.core.context_vars import CLIENT, REQUEST_ID
from service.core.errors import BadBody, DeadlinePassed, make_body_timeout
from service.core.problem_details import as_service_error
from service.operations.context import Service
from service.operations.readiness import readiness
from service.protos import inference_pb2
from service.protos import warptok_pb2 as pb
from service.runtime.file_limits import limit_grpc_connections
from service.runtime.tcp_connections import count_connections
from service.runtime.unix_sockets import prepare_unix_path, set_unix_mode
from service.security.addresses import TrustedProxies, strip_port
from service.security.scopes import find_key, find_method_scope

logger = logging.getLogger(__name__)
NAME = "warptok.v1.Tokenizer"
HEALTH_PERIOD_S = 0.5  # The time between two updates of the health state.
SUBMIT_S = 5.0  # The maximum time until those calls are in the queue or have ended.
Parse = Callable[[bytes], Any]
Unary = Callable[[Call, Any], Awaitable[Any]]
Stream = Callable[[Call, Any], AsyncIterator[Any]]

PARSERS: dict[str, Parse] = {
    pb.EncodeBatchRequest.DESCRIPTOR.full_name: TextsRequest.parse,
}
"""Parsers of the messages with large fields, by name; protobuf parses the others."""
UNARY: dict[str, Callable[[Service, Call, Any], Awaitable[Any]]] = {
    "Encode": tokenizer.encode,
    "EncodeBatch": tokenizer.encode_batch,
    "Count": tokenizer.count,
    "Decode": tokenizer.decode,
    "DecodeBatch": tokenizer.decode_batch,
    "Windows": tokenizer.windows,
    "Chunks": tokenizer.chunks,
    "ListVocabularies": vocabularies.list_vocabularies,
    "GetVocabulary": vocabularies.get_vocabulary,
    "PutVocabulary": vocabularies.put_vocabulary,
    "DeleteVocabulary": vocabularies.delete_vocabulary,
    "PutAlias": vocabularies.put_alias,
    "DeleteAlias": vocabularies.delete_alias,
    "GetInfo": vocabularies.get_info,
}


class Arrival(NamedTuple):
    """A received message: the perf_counter time of its arrival, and its bytes."""

    time: float
    data: bytes


class GrpcServer:
    """The gRPC server of one service.

    Args:
        oip: the state of the Open Inference Protocol, which contains the service.
        shares_port: whether the supervisor's standby may still listen on the port.

    Attributes:
        port: the TCP port that the server listens on, after `start`.
    """

    def __init__(self, oip: OipState, *, shares_port: bool = False) -> None:
        self.oip = oip
        self.service = oip.service
        self.port = 0
        self._max_connections = limit_grpc_connections(self.service.settings)
        self._server = make_server(
            self.service.settings, self._max_connections, shares_port=shares_port
        )
        self._proxies = TrustedProxies(self.service.settings)
        self._health = HealthServicer()
        self._watching: asyncio.Task[None] | None = None
        self._released: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Start to listen on a TCP port, and on the Unix socket of `grpc_unix_socket` if it is set.

        Args:
            host: the address to listen on; "none": do not listen on TCP.
            port: the TCP port; 0: any free port.

        Raises:
            OSError: the address cannot be used.
            ValueError: the path of the Unix socket cannot be used.
        """
        self._server.add_generic_rpc_handlers(self._handlers())
        add_HealthServicer_to_server(self._health, self._server)
        names = [
            NAME,
            grpc_service.NAME,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            reflection.SERVICE_NAME,
        ]
        reflection.enable_server_reflection(names, self._server)
        if host != "none":
            self.port = open_port(self._server, host, port, self.service.certificates)
        settings = self.service.settings
        if (path := settings.grpc_unix_socket) is not None:
            prepare_unix_path(path, "GRPC_UNIX_SOCKET")
            open_address(self._server, f"unix:{path}", None)
            set_unix_mode(path, settings)
        await self._server.start()
        if self.port:
            self.service.metrics.gauges.grpc_connections = self._count_connections
        self._watching = asyncio.create_task(self._watch_health())

    def _count_connections(self) -> tuple[int, int]:
        """Return the number of open connections to the port, and their limit."""
        return count_connections(self.port), self._max_connections

    async def begin_drain(self, grace_s: float) -> None:
        """Close the port, send GOAWAY, and wait until all received calls can be in the queue.

        Args:
            grace_s: the number of seconds after which unfinished calls are cancelled.
        """
        if self._watching is not None:
            self._watching.cancel()
        await self._health.enter_graceful_shutdown()
        self._released = asyncio.Event()
        self._stopping = await send_goaway(self._server, self._released, grace_s)
        await asyncio.wait([self._stopping], timeout=min(SUBMIT_S, grace_s))

    async def stop(self, grace_s: float) -> None:
        """Begin to drain if not done before, and wait until all calls have ended."""
        if self._stopping is None:
            await self.begin_drain(grace_s)
        assert self._stopping is not None
        await self._stopping

    async def _watch_health(self) -> None:
        """Report the state of /readyz as grpc.health.v1, for the server and each service."""
        states = health_pb2.HealthCheckResponse
        while True:
            state = states.NOT_SERVING if readiness(self.service) else states.SERVING
            for name in ("", NAME, grpc_service.NAME):
                await self._health.set(name, state)
            await asyncio.sleep(HEALTH_PERIOD_S)

    def _handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the handlers of all methods of both services."""
        native = self._make_handler(
            NAME,
            pb,
            _bind(UNARY, self.service),
            {"EncodeStream": partial(tokenizer.encode_stream, self.service)},
        )
        inference = self._make_handler(
            grpc_service.NAME,
            inference_pb2,
            _bind(grpc_service.UNARY, self.oip),
            {"ModelStreamInfer": partial(grpc_service.stream_infer, self.oip)},
        )
        return native, inference

    def _make_handler(
        self, name: str, messages: Any, unary: Mapping[str, Unary], streams: Mapping[str, Stream]
    ) -> grpc.GenericRpcHandler:
        """Create the handler of one service, which contains a handler for each method.

        Args:
            name: the full name of the service.
            messages: the module with the service's messages.
            unary: the functions of the methods with one answer.
            streams: the functions of the methods with a stream of answers.
        """
        described = messages.DESCRIPTOR.services_by_name[name.rsplit(".", 1)[1]]
        handlers = {}
        for method in described.methods:
            parse = PARSERS.get(method.input_type.full_name)
            parse = parse or getattr(messages, method.input_type.name).FromString
            path = f"/{name}/{method.name}"
            if method.name in streams:
                answer = self._stream(path, streams[method.name], parse)
                handler = grpc.stream_stream_rpc_method_handler(answer, _stamp_arrival)
            elif method.client_streaming:
                answer = self._client_stream(path, unary[method.name], parse)
                handler = grpc.stream_unary_rpc_method_handler(answer, _stamp_arrival)
            else:
                answer = self._unary(path, unary[method.name], parse)
                handler = grpc.unary_unary_rpc_method_handler(answer, _stamp_arrival)
            handlers[method.name] = handler
        return grpc.method_handlers_generic_handler(name, handlers)

    def _unary(self, path: str, function: Unary, parse: Parse) -> Any:
        """Create the handler of a method with one request and one answer.

        A message is parsed only after its key and scope have been checked.
        """

        async def answer(arrival: Arrival, context: grpc.aio.ServicerContext) -> bytes:
            async with self._answering(path, context) as call:
                call.times.read = arrival.time
                request = _parse(parse, arrival.data)
                return self._message(call, await function(call, request))

        return answer

    def _client_stream(self, path: str, function: Unary, parse: Parse) -> Any:
        """Create the handler of a method with a stream of requests and one answer."""

        async def answer(arrivals: Any, context: grpc.aio.ServicerContext) -> bytes:
            async with self._answering(path, context) as call:
                requests = self._requests(call, arrivals, parse)
                response = await function(call, requests)
                return self._message(call, response)

        return answer

    def _stream(self, path: str, function: Stream, parse: Parse) -> Any:
        """Create the handler of a method with a stream of requests and a stream of answers.

        The handler sends answers instead of yielding them, so that a slow client can be detected.
        """

        async def answer(arrivals: Any, context: grpc.aio.ServicerContext) -> None:
            async with self._answering(path, context) as call:
                requests = self._requests(call, arrivals, parse)
                with self.service.streams.open_stream():
                    async for response in function(call, requests):
                        await self._send(context, _to_bytes(response))

        return answer

    async def _requests(
        self, call: Call, arrivals: AsyncIterator[Arrival], parse: Parse
    ) -> AsyncIterator[Any]:
        """Yield the messages of a stream; raise BodyTimeout if none arrives for too long."""
        idle_s, iterator = self.service.settings.stream_idle_timeout_s, aiter(arrivals)
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    arrival = await anext(iterator)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise make_body_timeout(idle_s) from error
            call.times.read = arrival.time
            yield _parse(parse, arrival.data)

    async def _send(self, context: grpc.aio.ServicerContext, data: bytes) -> None:
        """Send an answer of a stream; raise DeadlinePassed if the client does not read it."""
        idle_s = self.service.settings.stream_idle_timeout_s
        try:
            async with asyncio.timeout(idle_s):
                await context.write(data)
        except TimeoutError as error:
            message = f"the client read nothing for {idle_s} s (setting stream_idle_timeout_s)"
            raise DeadlinePassed(message) from error

    @asynccontextmanager
    async def _answering(self, path: str, context: grpc.aio.ServicerContext) -> AsyncIterator[Call]:
        """Surround a call, from its metadata to its status; convert an exception to a refusal."""
        metadata = context.invocation_metadata() or ()
        pairs = [(name.encode(), _bytes(value)) for name, value in metadata]
        call = read_call(pairs)
        if (remaining_s := context.time_remaining()) is not None:
            call.ends_at = perf_counter() + remaining_s
        call.address = self._proxies.find_client(read_peer(context.peer()), pairs)
        REQUEST_ID.set(call.request_id.decode())
        self.service.metrics.count_received()
        try:
            if self._released is not None:
                await self._released.wait()
            self._admit(call, path, find_key(pairs))
            yield call
            headers = self.service.observer.answer_headers(call)
            context.set_trailing_metadata(
                tuple((name.decode(), value.decode()) for name, value in headers)
            )
        except (asyncio.CancelledError, GeneratorExit):
            call.is_gone = True
            self.service.observer.finish(call, path, CLIENT_CLOSED)
            raise
        except Exception as error:
            refusal = as_service_error(error)
            call.refusal = refusal.code
            # Count the call before the client receives the status.
            self.service.observer.finish(call, path, refusal.status)
            await abort(context, refusal, call.request_id.decode())
        self.service.observer.finish(call, path, 200)

    def _admit(self, call: Call, path: str, key: str | None) -> None:
        """Check the client's key and count the call; raise ServiceError if it is not allowed."""
        guard, needed_scope = self.service.guard, find_method_scope(path)
        call.may = partial(guard.check, key)
        if needed_scope is not None:
            call.key = guard.check(key, needed_scope)
            guard.limits.admit(call.key)
            CLIENT.set(call.key)

    def _message(self, call: Call, response: Any) -> bytes:
        """Serialize an answer, and record the time that this took."""
        data = _to_bytes(response)
        if call.times.finished:
            self.service.observer.add_serialize_time(call, perf_counter() - call.times.finished)
        return data


def _bind(functions: Mapping[str, Callable[..., Any]], state: object) -> dict[str, Unary]:
    """Bind the first argument of each function to `state`."""
    return {name: partial(function, state) for name, function in functions.items()}


def _stamp_arrival(data: bytes) -> Arrival:
    return Arrival(perf_counter(), data)


def _parse(parse: Parse, data: bytes) -> Any:
    """Parse a message, or raise BadBody; gRPC would report a DecodeError as a server error."""
    try:
        return parse(data)
    except DecodeError as error:
        raise BadBody("the bytes are not a valid message of this method", "message") from error


def read_peer(peer: str) -> str:
    """Return the IP address in gRPC's name of a peer, such as ipv4:192.0.2.1:80; "" if none."""
    kind, _, rest = unquote(peer).partition(":")
    return strip_port(rest) if kind in ("ipv4", "ipv6") else ""


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _to_bytes(message: Any) -> bytes:
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data
