"""Opens the ports of gRPC, for the server and for the standby of the supervisor."""

from __future__ import annotations

import asyncio

import grpc

from service.core.settings import Settings
from service.security.certificates import Certificates

IDLE_S = 300  # A connection without calls is closed after this time.
HOLD_S = 0.25
"""The time before and after GOAWAY in which calls are not answered; clients of a busy machine
need more than 50 ms to notice it."""


def make_server(
    settings: Settings, max_connections: int, *, shares_port: bool = False
) -> grpc.aio.Server:
    """Make a server that closes silent connections, and limits connections and calls.

    Args:
        settings: the settings of the service.
        max_connections: the most open connections.
        shares_port: whether another server that shares the port may listen on it, too.
    """
    return grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", settings.max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", int(shares_port)),
            ("grpc.max_allowed_incoming_connections", max_connections),
            ("grpc.max_concurrent_streams", settings.max_connections_per_address),
            # If enabled, a call that begins while another is being freed ends with UNAVAILABLE.
            ("grpc.http.overload_protection", 0),
            ("grpc.server_handshake_timeout_ms", round(1000 * settings.head_timeout_s)),
            ("grpc.max_connection_idle_ms", round(1000 * IDLE_S)),
            # A lost client does not answer pings; the library of a live one does.
            ("grpc.keepalive_time_ms", round(1000 * settings.stream_idle_timeout_s)),
            ("grpc.keepalive_timeout_ms", round(1000 * settings.head_timeout_s)),
        ]
    )


def open_port(
    server: grpc.aio.Server, host: str, port: int, certificates: Certificates | None
) -> int:
    """Let a server listen on a TCP port, with TLS if there is a certificate; return the port.

    Raises:
        OSError: the address cannot be used.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return open_address(server, address, certificates)


def open_address(server: grpc.aio.Server, address: str, certificates: Certificates | None) -> int:
    """Let a server listen on an address in gRPC's form; return the TCP port, if there is one.

    Raises:
        OSError: the address cannot be used.
    """
    try:
        if certificates is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, make_credentials(certificates)))
    except RuntimeError as error:
        raise OSError(f"gRPC: cannot listen on {address}: {error}") from error


def make_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Create the credentials of a port, which use the certificate that was read last."""

    def fetch() -> grpc.ServerCertificateConfiguration:
        # gRPC calls this for each handshake, on its own thread.
        current = certificates.current
        pairs = [(current.key, current.chain)]
        return grpc.ssl_server_certificate_configuration(pairs, current.client_ca)

    needs_client = certificates.current.client_ca is not None
    return grpc.dynamic_ssl_server_credentials(fetch(), fetch, needs_client)


async def send_goaway(
    server: grpc.aio.Server, released: asyncio.Event, grace_s: float
) -> asyncio.Task[None]:
    """Close the port, send GOAWAY, and return the task that waits for the end of all calls.

    gRPC cancels the calls that it reads after it has sent GOAWAY and before the client receives it,
    which are most calls of a busy client. Therefore calls are not answered from HOLD_S before
    GOAWAY to HOLD_S after it: clients that wait for an answer before their next call send none in
    this time, and send the next call elsewhere.

    Args:
        server: the server, whose calls wait for `released` before they are answered.
        released: is set at the end.
        grace_s: the number of seconds after which unfinished calls are cancelled.
    """
    hold_s = min(HOLD_S, grace_s)
    await asyncio.sleep(hold_s)
    stopping = asyncio.create_task(server.stop(grace_s))
    await asyncio.sleep(hold_s)
    released.set()
    return stopping
