"""Defines the state of the Open Inference Protocol: registered regions and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from service.apis.oip.region_registry import RegionRegistry
from service.apis.oip.statistics import Statistics
from service.engines.base import DeviceSharing
from service.operations.context import Service


@dataclass(frozen=True, slots=True)
class OipState:
    """The protocol's state of one service.

    Attributes:
        service: the service.
        regions: the regions of shared memory that clients have registered.
        statistics: the counts of each model's requests.
    """

    service: Service
    regions: RegionRegistry
    statistics: Statistics = field(default_factory=Statistics)


def make_oip_state(service: Service, device: DeviceSharing) -> OipState:
    """Create the state of a service, without regions and statistics.

    Args:
        service: the service.
        device: opens the memory that clients share.
    """
    settings = service.settings
    regions = RegionRegistry(
        settings.shared_memory, settings.max_regions, device.open_shared, device.share_host
    )
    return OipState(service, regions)


async def get_oip(request: Request) -> OipState:
    """Return the protocol's state of the application that received a request."""
    state: OipState = request.app.state.oip
    return state


OipDep = Annotated[OipState, Depends(get_oip)]
