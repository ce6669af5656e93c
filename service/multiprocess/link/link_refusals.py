"""Refusals as values of a message between a front end and the engine process; see channel.py."""

from __future__ import annotations

from typing import Any

from service.core.errors import DeadlinePassed, Draining, NotReady, QueueFull, ServiceError

EXPECTED: dict[str, type[ServiceError]] = {
    kind.code: kind for kind in (QueueFull, Draining, NotReady, DeadlinePassed)
}
"""Refusals that the caller tells apart; of others it passes on status and words."""


def refusal_values(refusal: ServiceError) -> dict[str, Any]:
    """A refusal as values."""
    headers = [[name.decode(), value.decode()] for name, value in refusal.headers]
    return {
        "status": refusal.status,
        "code": refusal.code,
        "message": refusal.message,
        "where": refusal.where,
        "headers": headers,
    }


def refusal_of(values: dict[str, Any]) -> ServiceError:
    """The refusal that the other side met."""
    kind = EXPECTED.get(values["code"], ServiceError)
    refusal = kind(values["message"], values["where"])
    refusal.status, refusal.code = values["status"], values["code"]
    refusal.headers = tuple((name.encode(), value.encode()) for name, value in values["headers"])
    return refusal
