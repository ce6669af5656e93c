"""Refuses gRPC calls in the supervisor while the engine process is started again.

    engine ends ─► standby listens: calls get UNAVAILABLE and the time after which to try again
    engine is up ─► standby sends GOAWAY: clients connect again, to the engine process

Only the engine process can answer calls. If nothing listened, clients would be refused by the
system, and wait longer after each attempt, up to two minutes, although the engine process is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from service.apis.grpc.ports import make_server, open_port, send_goaway
from service.apis.grpc.status import abort
from service.core.call import read_call
from service.core.errors import EngineLost
from service.core.settings import Settings
from service.runtime.file_limits import limit_grpc_connections
from service.security.certificates import Certificates

logger = logging.getLogger(__name__)
GRACE_S = 1.0
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
NOT_SERVING: bytes = HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING).SerializeToString()


class GrpcStandby:
    """A gRPC server that refuses all calls, but for health checks: those get NOT_SERVING.

    Args:
        settings: the settings of the service.

    Attributes:
        num_refused: the number of refused calls.
    """

    def __init__(self, settings: Settings) -> None:
        self.num_refused = 0
        self._settings = settings
        connections = limit_grpc_connections(settings)
        self._server = make_server(settings, connections, shares_port=True)
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._is_stopping = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()

    async def start(self) -> None:
        """Listen on the port of gRPC.

        Raises:
            OSError: the address cannot be used.
            ValueError: the certificate of TLS cannot be used.
        """
        settings = self._settings
        certificates = Certificates.from_settings(settings)
        open_port(self._server, settings.host, settings.grpc_port, certificates)
        await self._server.start()

    async def stop(self) -> None:
        """Let clients connect to the engine process, and end."""
        self._is_stopping.set()
        self._released.clear()
        await (await send_goaway(self._server, self._released, GRACE_S))
        if self.num_refused:
            logger.warning(
                "%d gRPC calls were refused while the engine process was started", self.num_refused
            )

    async def refuse(self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        """End a call of any kind with UNAVAILABLE."""
        self.num_refused += 1
        await self._released.wait()
        await self._abort(context)

    async def check(self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        """Answer a health check."""
        await self._released.wait()
        await context.write(NOT_SERVING)

    async def watch(self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        """Send the state of health, and end the call when the engine process is up."""
        await context.write(NOT_SERVING)
        await self._is_stopping.wait()
        await self._abort(context)

    async def _abort(self, context: grpc.aio.ServicerContext) -> None:
        metadata = context.invocation_metadata() or ()
        pairs = [
            (b"x-request-id", value.encode()) for name, value in metadata if name == "x-request-id"
        ]
        refusal = EngineLost("the engine process is being restarted; try again")
        await abort(context, refusal, read_call(pairs).request_id.decode())


class _Handlers:
    """Finds the function that answers a call; a grpc.GenericRpcHandler."""

    def __init__(self, standby: GrpcStandby) -> None:
        self._standby = standby

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method; one of streams answers calls of every kind."""
        standby = self._standby
        functions: dict[str, Any] = {CHECK: standby.check, WATCH: standby.watch}
        return grpc.stream_stream_rpc_method_handler(
            functions.get(handler_call_details.method, standby.refuse)
        )
