"""The routes of the Open Inference Protocol v2 under /v2, with Triton's extensions.

The body of every refusal is what the protocol's clients expect: JSON with a string `error`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import Base64Bytes, Field
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from service.apis.oip import models
from service.apis.oip.http_infer import Infer
from service.apis.oip.state import OipDep
from service.http.dependencies import ServiceDep, read_whole_body
from service.http.names_in_paths import MODEL_PATH
from service.operations.readiness import readiness
from service.operations.schemas import IgnoreExtra
from service.registry.entries import DECODE_SUFFIX

router = APIRouter(prefix="/v2", tags=["open inference protocol"])


@router.get("")
async def server_metadata() -> dict[str, Any]:
    """Describe the server and its extensions."""
    return models.server()


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live")
async def live() -> dict[str, bool]:
    """Report that the process runs."""
    return {"live": True}


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready")
async def ready(service: ServiceDep, response: Response) -> dict[str, bool]:
    """Report whether the service is ready: 200, or 503 if not."""
    is_ready = not readiness(service)
    response.status_code = 200 if is_ready else 503
    return {"live": True, "ready": is_ready}


@router.get("/models/stats")
async def all_statistics(oip: OipDep) -> dict[str, Any]:
    """Return the statistics of all models."""
    names = [each["name"] for each in models.index(oip.service)]
    return {"model_stats": oip.statistics.report(names)}


def _model(path: str) -> Callable[[Any], Any]:
    """Declare a route of a model under both of its paths: with a version and without one."""

    def declare(function: Any) -> Any:
        for prefix in (f"/models/{MODEL_PATH}", f"/models/{MODEL_PATH}/versions/{{version}}"):
            router.add_api_route(prefix + path, function, methods=["GET"])
        return function

    return declare


@_model("")
async def model_metadata(service: ServiceDep, model: str, version: str = "") -> dict[str, Any]:
    """Describe the inputs and outputs of a model."""
    models.check_version(service, model, version)
    return models.metadata(model)


@_model("/ready")
async def model_ready(
    service: ServiceDep, response: Response, model: str, version: str = ""
) -> dict[str, Any]:
    """Report whether a model is ready; if not, its first request loads it."""
    vocabulary = models.check_version(service, model, version)
    failure = service.registry.failures.get(vocabulary.name)
    response.status_code = 200 if failure is None else 503
    return {"name": model, "ready": failure is None}


@_model("/config")
async def model_config(service: ServiceDep, model: str, version: str = "") -> dict[str, Any]:
    """Return a model's configuration in Triton's format."""
    models.check_version(service, model, version)
    return models.config(model)


@_model("/stats")
async def model_statistics(oip: OipDep, model: str, version: str = "") -> dict[str, Any]:
    """Return the statistics of a model."""
    models.check_version(oip.service, model, version)
    return {"model_stats": oip.statistics.report([models.own_name(oip.service, model)])}


class InferRoute(APIRoute):
    """A route that FastAPI declares but `Infer` answers, as FastAPI reads bodies more slowly."""

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        path, oip = scope["path_params"], scope["app"].state.oip
        answer = Infer(oip, scope, path["model"], path.get("version", ""))
        await answer(scope, receive, send)


async def infer(model: str, version: str = "") -> Response:
    """Encode texts or decode ids; /v2/models/{model} describes the inputs and outputs."""
    raise NotImplementedError  # InferRoute answers instead.


for path in (f"/models/{MODEL_PATH}/infer", f"/models/{MODEL_PATH}/versions/{{version}}/infer"):
    router.add_api_route(path, infer, methods=["POST"], route_class_override=InferRoute)


class IndexRequest(IgnoreExtra):
    """The options of the list of models; `ready` omits models that are not ready."""

    ready: bool = False


@router.post("/repository/index")
async def repository_index(service: ServiceDep, request: Request) -> list[dict[str, str]]:
    """List all models and their states."""
    options = IndexRequest.model_validate_json(await read_whole_body(request) or b"{}")
    return models.index(service, ready_only=options.ready)


class LoadRequest(IgnoreExtra):
    """The body of a request to load a model."""

    parameters: dict[str, Any] = Field({})


@router.post(f"/repository/models/{MODEL_PATH}/load")
async def repository_load(service: ServiceDep, request: Request, model: str) -> dict[str, str]:
    """Load a registered vocabulary; PUT /v1/vocabularies/{name} uploads and registers one."""
    body = LoadRequest.model_validate_json(await read_whole_body(request) or b"{}")
    models.check_load(body.parameters)
    name = model.removesuffix(DECODE_SUFFIX)
    await service.get_engine_parts().vocabularies.load(name, "model")
    return {}


@router.post(f"/repository/models/{MODEL_PATH}/unload")
async def repository_unload(service: ServiceDep, model: str) -> dict[str, str]:
    """Unload a vocabulary; its next use loads it again."""
    await service.get_engine_parts().vocabularies.unload(model.removesuffix(DECODE_SUFFIX), "model")
    return {}


class RawHandle(IgnoreExtra):
    """A cudaIpcMemHandle_t as Triton's clients send it."""

    b64: Base64Bytes


class CudaRegister(IgnoreExtra):
    """The device memory to register."""

    raw_handle: RawHandle
    device_id: int = 0
    byte_size: int


class SystemRegister(IgnoreExtra):
    """The POSIX shared-memory object to register."""

    key: str
    offset: int = 0
    byte_size: int


@router.get("/systemsharedmemory/status")
@router.get("/systemsharedmemory/region/{name}/status")
async def system_status(oip: OipDep, name: str = "") -> list[dict[str, Any]]:
    """List the registered regions of system memory, or the one that is named."""
    return [
        {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.byte_size}
        for each in oip.regions.system_status(name)
    ]


@router.post("/systemsharedmemory/region/{name}/register")
async def system_register(oip: OipDep, request: Request, name: str) -> dict[str, str]:
    """Register a region of system memory for inputs and outputs."""
    # Triton's client sends JSON without a Content-Type.
    region = SystemRegister.model_validate_json(await read_whole_body(request))
    regions = oip.regions
    await regions.register_system(name, region.key, region.offset, region.byte_size)
    return {}


@router.post("/systemsharedmemory/unregister")
@router.post("/systemsharedmemory/region/{name}/unregister")
async def system_unregister(oip: OipDep, name: str = "") -> dict[str, str]:
    """Unregister the named region of system memory, or all of them without a name."""
    await oip.regions.unregister_system(name)
    return {}


@router.get("/cudasharedmemory/status")
@router.get("/cudasharedmemory/region/{name}/status")
async def cuda_status(oip: OipDep, name: str = "") -> list[dict[str, Any]]:
    """List the registered regions of device memory, or the one that is named."""
    return [
        {"name": each.name, "device_id": each.device_id, "byte_size": each.byte_size}
        for each in oip.regions.cuda_status(name)
    ]


@router.post("/cudasharedmemory/unregister")
@router.post("/cudasharedmemory/region/{name}/unregister")
async def cuda_unregister(oip: OipDep, name: str = "") -> dict[str, str]:
    """Unregister the named region of device memory, or all of them without a name."""
    await oip.regions.unregister_cuda(name)
    return {}


@router.post("/cudasharedmemory/region/{name}/register")
async def cuda_register(oip: OipDep, request: Request, name: str) -> dict[str, str]:
    """Register device memory for inputs and outputs."""
    region = CudaRegister.model_validate_json(await read_whole_body(request))
    regions = oip.regions
    await regions.register_cuda(name, region.raw_handle.b64, region.device_id, region.byte_size)
    return {}
