"""Runs the command `serve`: reads the settings, starts the log, starts the processes.

It imports little, so that several processes can start before large modules are loaded.
"""

from __future__ import annotations

import argparse

from pydantic import ValidationError

from service.core.settings import PREFIX, Settings, read_settings
from service.observability.logging import configure


def run(arguments: argparse.Namespace) -> int:
    """Answer requests until SIGTERM or Ctrl-C; return the exit code.

    Raises:
        ValueError: a setting in the environment or an option is wrong.
    """
    settings = _settings(arguments)
    configure(settings)
    if settings.frontends:
        from service.multiprocess.supervisor import supervise

        return supervise(settings)
    from service.server.uvicorn_server import serve

    return serve(settings)


def _settings(arguments: argparse.Namespace) -> Settings:
    names = ("host", "port", "frontends", "engine")
    options = {name: getattr(arguments, name) for name in names}
    overrides = {name: value for name, value in options.items() if value is not None}
    try:
        return read_settings(**overrides)
    except ValidationError as error:
        messages = []
        for fault in error.errors():
            name, *_ = map(str, fault["loc"])
            origin = f"--{name}" if name in overrides else PREFIX + name.upper()
            messages.append(f"{origin}: {fault['msg']}")
        raise ValueError("; ".join(messages)) from error
