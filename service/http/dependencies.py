"""What FastAPI's routes ask for: the service that an application belongs to."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.operations.context import Service


async def get_service(request: Request) -> Service:
    """Get the service of a request's application."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]
