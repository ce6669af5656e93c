"""Converts the status of a failed gRPC call into an error of `warptok.errors`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from warptok.clients.transport import REQUEST_CODES
from warptok.errors import (
    DeadlinePassed,
    Fault,
    ServiceFailed,
    TooLarge,
    Unavailable,
    WarptokError,
    error_class,
)

STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "INVALID_ARGUMENT": 422,
        "UNAUTHENTICATED": 401,
        "PERMISSION_DENIED": 403,
        "NOT_FOUND": 404,
        "ALREADY_EXISTS": 409,
        "FAILED_PRECONDITION": 412,
        "RESOURCE_EXHAUSTED": 429,
        "UNIMPLEMENTED": 501,
        "UNAVAILABLE": 503,
        "DEADLINE_EXCEEDED": 504,
    }
)
"""The HTTP status for a gRPC status whose details do not name one."""
BY_THE_LIBRARY: Mapping[str, type[WarptokError]] = MappingProxyType(
    {
        "UNAVAILABLE": Unavailable,
        "CANCELLED": Unavailable,
        "DEADLINE_EXCEEDED": DeadlinePassed,
        "RESOURCE_EXHAUSTED": TooLarge,
    }
)
"""The errors for statuses without details, which the gRPC library sets and not the service."""


def make_error(failure: Any, target: str) -> WarptokError:
    """Convert a grpc.RpcError into an error of `warptok.errors`.

    If the status lacks the service's details, the connection or the gRPC library failed.
    """
    from google.rpc import error_details_pb2 as details
    from grpc_status import rpc_status

    name: str = failure.code().name
    status = rpc_status.from_call(failure)
    found = {} if status is None else _unpack(status, details)
    info = found.get("ErrorInfo")
    if status is None or info is None:
        kind = BY_THE_LIBRARY.get(name, ServiceFailed)
        is_lost = kind is Unavailable
        said = f"{target} is not reached" if is_lost else f"{target} answered {name}"
        return kind(f"{said}: {failure.details()}")
    http_status = int(info.metadata.get("http_status", STATUSES.get(name, 500)))
    is_row = http_status == 422 and info.reason not in REQUEST_CODES
    violations = [] if "BadRequest" not in found else list(found["BadRequest"].field_violations)
    places = [Fault(each.field, each.description) for each in violations]
    delay = found["RetryInfo"].retry_delay if "RetryInfo" in found else None
    kind = error_class(info.reason, http_status, is_row=is_row)
    return kind(
        places[0].message if len(places) == 1 else status.message,
        code=info.reason,
        where=places[0].where if len(places) == 1 else "",
        findings=places if len(places) > 1 else (),
        status=http_status,
        request_id=found["RequestInfo"].request_id if "RequestInfo" in found else "",
        retry_after_s=None if delay is None else delay.seconds + delay.nanos / 1e9,
    )


def _unpack(status: Any, details: Any) -> dict[str, Any]:
    """Unpack the details of a status into messages by their type name."""
    found = {}
    for packed in status.details:
        name = packed.TypeName().rpartition(".")[2]
        if hasattr(details, name):
            message = getattr(details, name)()
            packed.Unpack(message)
            found[name] = message
    return found
