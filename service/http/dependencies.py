"""Provides FastAPI's routes with the service of their application."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.operations.context import Service


async def get_service(request: Request) -> Service:
    """Return the service of a request's application."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]
