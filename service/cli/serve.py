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
