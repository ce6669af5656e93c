"""Describes the service for GET /v1/info and GetInfo: its version, engines and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.core.version import package_version

if TYPE_CHECKING:
    from service.operations.context import Service


def describe_service(service: Service) -> dict[str, Any]:
    """Return the version, the engines, the limits, and the parameters of the batcher."""
    settings, status = service.settings, service.engine.status()
    limits = {
        name: getattr(settings, name)
        for name in type(settings).model_fields
        if name.startswith("max_") or name == "request_timeout_ms"
    }
    return {
        "name": "warptok",
        "version": package_version(),
        "engines": list(status.engines),
        "devices": list(status.devices),
        "default_vocabulary": settings.default_vocabulary,
        "limits": limits,
        "batching": {
            "policy": "batch-while-busy",
            "artificial_delay_ms": 0,
            "max_batch_bytes": settings.max_batch_bytes,
            "inline_batch_bytes": settings.inline_batch_bytes,
            "long_request_bytes": settings.long_request_bytes,
        },
        "crossover_bytes": status.crossover_bytes,
        "fallbacks": status.fallbacks,
    }
