"""Answers health checks (GET and HEAD), /v1/info and metrics, and returns the playground page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from service.http.dependencies import ServiceDep
from service.observability.process_metrics import exposition
from service.operations.description import describe_service
from service.operations.readiness import readiness

router = APIRouter(tags=["service"])
PLAYGROUND = Path(__file__).parent / "static" / "index.html"
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)


class Live(BaseModel):
    """The answer of a running process."""

    live: bool = True


class Ready(BaseModel):
    """Whether the service is ready for requests, and the reasons if it is not."""

    ready: bool
    reasons: list[str] = Field(description="Why the service is not ready; empty if it is.")


@router.head("/livez", include_in_schema=False)
@router.get("/livez")
async def livez() -> Live:
    """Report that the process and its event loop run."""
    return Live()


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"model": Ready, "description": "Not ready."}})
async def readyz(service: ServiceDep, response: Response) -> Ready:
    """Report whether this replica is ready: 503 while it starts, drains or has a long queue."""
    reasons = readiness(service)
    response.status_code = 503 if reasons else 200
    return Ready(ready=not reasons, reasons=reasons)


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", response_class=Response)
async def metrics(service: ServiceDep, request: Request) -> Response:
    """Return the metrics in a Prometheus format; 404 if they are served on a separate port."""
    if service.settings.metrics_port is not None:
        raise HTTPException(404, "/metrics is answered on another port (setting metrics_port)")
    accept = request.headers.get("accept", "")
    if service.processes is None:
        body, content_type = service.metrics.exposition(accept)
    else:
        body, content_type = exposition(await service.processes.families(), accept)
    return Response(body, headers={"content-type": content_type})


@router.get("/v1/info")
async def info(service: ServiceDep) -> dict[str, Any]:
    """Return the version, the engines, the limits, and the parameters of the batcher."""
    return describe_service(service)


@router.get("/", include_in_schema=False)
async def playground() -> HTMLResponse:
    """Return the page on which users can try vocabularies."""
    headers = {"content-security-policy": CONTENT_POLICY, "x-content-type-options": "nosniff"}
    return HTMLResponse(PLAYGROUND.read_text(encoding="utf-8"), headers=headers)
