"""Decides whether load balancers should send requests to this service now."""

from __future__ import annotations

from service.operations.context import Service

HIGH_WATER = 0.8  # Share of max_queue_bytes above which other replicas should receive the requests.


def readiness(service: Service) -> list[str]:
    """Return the reasons why the service is not ready; an empty list if it is ready."""
    reasons = []
    if not service.preloaded:
        reasons.append("loading vocabularies")
    if service.draining:
        reasons.append("draining")
    if service.batcher.queue_bytes > HIGH_WATER * service.settings.max_queue_bytes:
        reasons.append("the queue is above high water")
    if service.processes is not None:
        reasons += [reason for reason in service.processes.reasons() if reason not in reasons]
    return reasons
