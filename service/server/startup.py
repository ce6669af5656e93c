"""Constants and messages for the start of every process; this module imports little."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from service.core.version import package_version

if TYPE_CHECKING:  # It takes a quarter of a second, which `warptok --help` need not wait for.
    from service.core.settings import Settings

BACKLOG = 2048
USAGE_ERROR = 2  # The exit code if a setting, or a file that it names, is invalid.
DEVICE_LOST = 75  # The exit code after the loss of the GPU: EX_TEMPFAIL, restart.


def find_lame_duck_s(settings: Settings, number: int) -> float:
    """Return for how many seconds after a signal new requests are still answered.

    The result is 0 for SIGINT (Ctrl-C): a user in a terminal waits, without a load balancer.
    """
    return 0.0 if number == signal.SIGINT else settings.lame_duck_s


def print_address(
    settings: Settings, port: int | None, grpc_port: int | None, metrics_port: int | None
) -> None:
    """Print the addresses on which the service listens."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.tls_certificate else "http"
    addresses = []
    if port is not None:
        url = f"{scheme}://{host}:{port}"
        addresses.append(url)
    else:
        url = "http://localhost"
    if settings.unix_socket is not None:
        addresses.append(f"unix:{settings.unix_socket}")
    if grpc_port:
        addresses.append(f"gRPC on {host}:{grpc_port}")
    if settings.serves_grpc and settings.grpc_unix_socket is not None:
        addresses.append(f"gRPC on unix:{settings.grpc_unix_socket}")
    if metrics_port:
        addresses.append(f"metrics on {host}:{metrics_port}")
    joined = ", ".join(addresses)
    try:
        print(f"warptok {package_version()} on {joined} (documentation: {url}/docs)", flush=True)
    except OSError:  # Nobody reads it; at its end, Python would fail to write it once more.
        sys.stdout = open(os.devnull, "w")
