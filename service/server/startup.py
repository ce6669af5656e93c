"""What every process of the service needs at its start; little is imported here."""

from __future__ import annotations

from service.core.settings import Settings
from service.core.version import package_version

BACKLOG = 2048
USAGE_ERROR = 2  # The exit code where a setting, or what it names, is wrong.


def print_address(
    settings: Settings, port: int, grpc_port: int | None, metrics_port: int | None
) -> None:
    """Print the line that says where the service is."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    also = f", gRPC on {host}:{grpc_port}" if grpc_port else ""
    also += f", metrics on {host}:{metrics_port}" if metrics_port else ""
    print(f"warptok {package_version()} on {url}{also} (documentation: {url}/docs)", flush=True)
