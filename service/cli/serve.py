"""The command `serve`: its settings, its log, and which processes it takes.

Little is imported here, so that several processes can be started before anything large is.
"""

from __future__ import annotations

import argparse
import logging

from pydantic import ValidationError

from service.core.settings import PREFIX, Settings, read_settings
from service.core.version import package_version
from service.observability.logging import JsonLines, TextLines

BACKLOG = 2048
USAGE_ERROR = 2  # The exit code where a setting, or what it names, is wrong.


def run(arguments: argparse.Namespace) -> int:
    """Answer requests until SIGTERM or Ctrl-C; the exit code.

    Raises:
        ValueError: a setting in the environment or an option is wrong.
    """
    settings = _settings(arguments)
    start_logging(settings)
    if settings.frontends:
        from service.multiprocess.supervisor import supervise

        return supervise(settings)
    from service.server.uvicorn_server import serve

    return serve(settings)


def _settings(arguments: argparse.Namespace) -> Settings:
    options = {name: getattr(arguments, name) for name in ("host", "port", "frontends", "engine")}
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return read_settings(**given)
    except ValidationError as error:
        faults = [(str(fault["loc"][0]), fault["msg"]) for fault in error.errors()]
        named = [
            f"{f'--{name}' if name in given else PREFIX + name.upper()}: {message}"
            for name, message in faults
        ]
        raise ValueError("; ".join(named)) from error


def start_logging(settings: Settings, process: str = "") -> None:
    """Log lines to stderr, each with the name of its process where there are several."""
    level = settings.log_level.upper()
    form = JsonLines(process) if settings.log_format == "json" else TextLines(process)
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.basicConfig(level=level, handlers=[handler])
    # uvicorn's own lines about starting and stopping say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level)))


def say_where(
    settings: Settings, port: int, grpc_port: int | None, metrics_port: int | None
) -> None:
    """The line that says where the service is."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    also = f", gRPC on {host}:{grpc_port}" if grpc_port else ""
    also += f", metrics on {host}:{metrics_port}" if metrics_port else ""
    print(f"warptok {package_version()} on {url}{also} (documentation: {url}/docs)", flush=True)
