"""Runs the commands `serve` and `render`: reads the settings, starts the log and the processes.

It imports little, so that several processes can start before large modules are loaded.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import logging
from typing import TYPE_CHECKING

from pydantic import ValidationError

from service.core.settings import PREFIX, Settings, read_settings, with_defaults
from service.observability.logging import configure
from service.runtime.extensions import describe_missing

if TYPE_CHECKING:
    from service.engines.hybrid.residency import OpenedGpu

logger = logging.getLogger(__name__)
OPTIONS = {name: name for name in ("host", "port", "frontends", "engine")}
"""The setting of each option of `serve`."""
RENDER_OPTIONS = OPTIONS | {
    "folder": "model_dir",
    "served_model_name": "model_names",
    "max_model_len": "max_model_len",
    "pretokenizer": "model_pretokenizer",
    "ssl_certfile": "tls_certificate",
    "ssl_keyfile": "tls_key",
}
"""The setting of each option of `render`."""
RENDER_DEFAULTS = {
    "host": "0.0.0.0",
    "engine": "cpu",
    "grpc": False,
    "management": False,
    # Routers wait for 5 s, and go elsewhere at once when they are refused.
    "request_timeout_ms": 1_000,
}


def run(arguments: argparse.Namespace) -> int:
    """Answer requests until SIGTERM or Ctrl-C; return the exit code.

    Raises:
        ValueError: a setting in the environment or an option is wrong.
        NotInstalled: the settings need packages that are not installed.
    """
    # Starting makes hardly any garbage, and collecting takes 0.1 s. It is enabled again when the
    # vocabularies are loaded (`preload`), or below where other processes load them.
    gc.disable()
    from service.core.extras import check_installed
    from service.registry.model_folder import use_model

    if arguments.command == "render":
        settings = with_defaults(_read(arguments, RENDER_OPTIONS), RENDER_DEFAULTS)
    else:
        settings = _read(arguments, OPTIONS)
    if settings.serves_grpc:
        check_installed(f"gRPC calls ({PREFIX}GRPC=false turns them off)", "grpc")
    configure(settings)
    uses_gpu = settings.engine != "cpu" and importlib.util.find_spec("cupy") is not None
    if missing := describe_missing(uses_gpu):
        logger.warning(missing)
    settings = use_model(settings)
    if settings.frontends:
        from service.multiprocess.supervisor import supervise

        gc.enable()
        return supervise(settings)
    from service.server.uvicorn_server import serve

    return serve(settings, _open_gpus)


def _open_gpus(settings: Settings) -> OpenedGpu:
    # Imported only where CuPy is installed.
    from service.multiprocess.gpu_workers.opening import open_gpus

    return open_gpus(settings)


def _read(arguments: argparse.Namespace, options: dict[str, str]) -> Settings:
    """Read the settings; options win over the environment.

    Raises:
        ValueError: a setting or an option is wrong.
    """
    given = {setting: getattr(arguments, option) for option, setting in options.items()}
    overrides = {name: value for name, value in given.items() if value is not None}
    if isinstance(names := overrides.get("model_names"), list):
        if any("," in name for name in names):
            raise ValueError("--served-model-name: a name must not contain a comma")
        overrides["model_names"] = ",".join(names)
    try:
        return read_settings(**overrides)
    except ValidationError as error:
        by_setting = {setting: option for option, setting in options.items()}
        messages = []
        for fault in error.errors():
            name, *_ = map(str, fault["loc"])
            option = f"--{by_setting.get(name, name).replace('_', '-')}"
            origin = option if name in overrides else PREFIX + name.upper()
            messages.append(f"{origin}: {fault['msg']}")
        raise ValueError("; ".join(messages)) from error
