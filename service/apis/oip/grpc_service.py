"""Implements inference.GRPCInferenceService: the Open Inference Protocol v2 and Triton's calls.

Each call converts its message to a call of `infer`, `models` or the registry, and converts the
result to a message; protos/inference.proto describes the messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from service.apis.oip import grpc_regions as regions
from service.apis.oip import models
from service.apis.oip.infer import infer
from service.apis.oip.region_tensors import REGION, input_from_region, output_to_region
from service.apis.oip.requests import Inference, RequestedOutput, check_new_input
from service.apis.oip.state import OipState
from service.apis.oip.statistics import VERSION
from service.apis.oip.tensors import BYTES, Tensor, check_shape, make_bytes_tensor, read_tensor
from service.core.call import Call
from service.core.errors import InvalidRequest, UnknownVocabulary
from service.core.problem_details import as_service_error
from service.operations.readiness import readiness
from service.protos import inference_pb2 as pb
from service.registry.entries import DECODE_SUFFIX
from vocabularies.batch.batch import Batch

NAME = "inference.GRPCInferenceService"
MAX_TENSORS = 16
CONTENTS = {  # The field of the typed contents for each datatype.
    BYTES: "bytes_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "INT8": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
}


async def server_live(oip: OipState, call: Call, request: Any) -> pb.ServerLiveResponse:
    """Report that the process runs."""
    return pb.ServerLiveResponse(live=True)


async def server_ready(oip: OipState, call: Call, request: Any) -> pb.ServerReadyResponse:
    """Report whether the service is ready."""
    return pb.ServerReadyResponse(ready=not readiness(oip.service))


async def model_ready(
    oip: OipState, call: Call, request: pb.ModelReadyRequest
) -> pb.ModelReadyResponse:
    """Report whether a model is ready; an unknown model is not ready, as in Triton."""
    try:
        vocabulary = models.check_version(oip.service, request.name, request.version)
    except UnknownVocabulary:
        return pb.ModelReadyResponse(ready=False)
    return pb.ModelReadyResponse(ready=vocabulary.name not in oip.service.registry.failures)


async def server_metadata(oip: OipState, call: Call, request: Any) -> pb.ServerMetadataResponse:
    """Describe the server and its extensions."""
    return pb.ServerMetadataResponse(**models.server())


async def model_metadata(
    oip: OipState, call: Call, request: pb.ModelMetadataRequest
) -> pb.ModelMetadataResponse:
    """Describe the inputs and outputs of a model."""
    models.check_version(oip.service, request.name, request.version, "name")
    return pb.ModelMetadataResponse(**models.metadata(request.name))


async def model_config(
    oip: OipState, call: Call, request: pb.ModelConfigRequest
) -> pb.ModelConfigResponse:
    """Return a model's configuration."""
    models.check_version(oip.service, request.name, request.version, "name")
    return pb.ModelConfigResponse(config=pb.ModelConfig(**models.config(request.name)))


async def model_statistics(
    oip: OipState, call: Call, request: pb.ModelStatisticsRequest
) -> pb.ModelStatisticsResponse:
    """Return the statistics of one model, or of all models."""
    if request.name:
        models.check_version(oip.service, request.name, request.version, "name")
        names = [models.own_name(oip.service, request.name)]
    else:
        names = [each["name"] for each in models.index(oip.service)]
    return pb.ModelStatisticsResponse(model_stats=oip.statistics.report(names))


async def repository_index(
    oip: OipState, call: Call, request: pb.RepositoryIndexRequest
) -> pb.RepositoryIndexResponse:
    """List all models and their states."""
    return pb.RepositoryIndexResponse(models=models.index(oip.service, ready_only=request.ready))


async def repository_load(
    oip: OipState, call: Call, request: pb.RepositoryModelLoadRequest
) -> pb.RepositoryModelLoadResponse:
    """Load a vocabulary."""
    models.check_load(request.parameters)
    name = request.model_name.removesuffix(DECODE_SUFFIX)
    await oip.service.get_engine_parts().vocabularies.load(name, "model_name")
    return pb.RepositoryModelLoadResponse()


async def repository_unload(
    oip: OipState, call: Call, request: pb.RepositoryModelUnloadRequest
) -> pb.RepositoryModelUnloadResponse:
    """Unload a vocabulary."""
    name = request.model_name.removesuffix(DECODE_SUFFIX)
    await oip.service.get_engine_parts().vocabularies.unload(name, "model_name")
    return pb.RepositoryModelUnloadResponse()


async def model_infer(
    oip: OipState, call: Call, request: pb.ModelInferRequest
) -> pb.ModelInferResponse:
    """Encode texts, or decode ids if the model's name ends with `.decode`."""
    models.check_version(oip.service, request.model_name, request.model_version, "model_name")
    if len(request.inputs) > MAX_TENSORS or len(request.outputs) > MAX_TENSORS:
        raise InvalidRequest(f"more than {MAX_TENSORS} inputs or outputs", "inputs")
    inference = Inference(
        request.model_name,
        _values(request.parameters),
        _inputs(oip, request),
        [RequestedOutput(each.name, _values(each.parameters)) for each in request.outputs],
        call,
    )
    return _make_response(oip, request, await infer(oip, inference))


async def stream_infer(
    oip: OipState, call: Call, requests: AsyncIterator[pb.ModelInferRequest]
) -> AsyncIterator[pb.ModelStreamInferResponse]:
    """Answer each request in order with a result or an error; an error does not end the stream."""
    async for request in requests:
        try:
            response = await model_infer(oip, replace(call, ends_at=inf), request)
        except Exception as error:
            refusal = as_service_error(error)
            oip.service.metrics.count_rejected(refusal.code)
            message = f"{refusal.where}: {refusal.message}" if refusal.where else refusal.message
            failed = pb.ModelInferResponse(id=request.id, model_name=request.model_name)
            yield pb.ModelStreamInferResponse(error_message=message, infer_response=failed)
        else:
            yield pb.ModelStreamInferResponse(infer_response=response)


def _values(parameters: Any) -> dict[str, Any]:
    """Return parameters by name, each with the type of its message."""
    values = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is not None:
            values[name] = getattr(parameter, kind)
    return values


def _inputs(oip: OipState, request: pb.ModelInferRequest) -> dict[str, Tensor]:
    """Read tensors from shared memory, raw contents in their order, or typed contents."""
    inputs: dict[str, Tensor] = {}
    raw = iter(request.raw_input_contents)
    for each in request.inputs:
        check_new_input(inputs, each.name)
        parameters, shape = _values(each.parameters), tuple(each.shape)
        if REGION in parameters:
            inputs[each.name] = input_from_region(oip, each.name, each.datatype, shape, parameters)
        elif request.raw_input_contents:
            content = next(raw, None)
            if content is None:
                raise InvalidRequest("has no raw content", f"inputs/{each.name}")
            if each.contents.ByteSize():
                message = "has contents, but the request has raw_input_contents"
                raise InvalidRequest(message, f"inputs/{each.name}")
            data = np.frombuffer(content, np.uint8)
            inputs[each.name] = read_tensor(each.name, each.datatype, shape, data)
        else:
            inputs[each.name] = _read_contents(each, shape)
    if num_left := len(list(raw)):
        raise InvalidRequest(
            f"the last {num_left} do not belong to any input", "raw_input_contents"
        )
    return inputs


def _read_contents(each: pb.ModelInferRequest.InferInputTensor, shape: tuple[int, ...]) -> Tensor:
    """Read a tensor from typed contents."""
    field = CONTENTS.get(each.datatype)
    values = list(getattr(each.contents, field)) if field is not None else []
    if each.datatype != BYTES:
        return read_tensor(each.name, each.datatype, shape, values)
    check_shape(each.name, shape)
    tensor = make_bytes_tensor(each.name, Batch.from_bytes(values))
    return Tensor(each.name, BYTES, shape, tensor.data)


def _make_response(
    oip: OipState, request: pb.ModelInferRequest, outputs: list[Tensor]
) -> pb.ModelInferResponse:
    requested = {each.name: _values(each.parameters) for each in request.outputs}
    response = pb.ModelInferResponse(
        model_name=request.model_name, model_version=VERSION, id=request.id
    )
    for tensor in outputs:
        parameters = requested.get(tensor.name, {})
        described = response.outputs.add(
            name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
        )
        if REGION in parameters:
            written = output_to_region(oip.regions, tensor, parameters)
            _set_values(described.parameters, written)
            response.raw_output_contents.append(b"")
        else:
            response.raw_output_contents.append(tensor.data.tobytes())
    return response


def _set_values(parameters: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, str):
            parameters[name].string_param = value
        else:
            parameters[name].int64_param = value


UNARY: dict[str, Any] = {
    "ServerLive": server_live,
    "ServerReady": server_ready,
    "ModelReady": model_ready,
    "ServerMetadata": server_metadata,
    "ModelMetadata": model_metadata,
    "ModelInfer": model_infer,
    "ModelConfig": model_config,
    "ModelStatistics": model_statistics,
    "RepositoryIndex": repository_index,
    "RepositoryModelLoad": repository_load,
    "RepositoryModelUnload": repository_unload,
    "SystemSharedMemoryStatus": regions.system_status,
    "SystemSharedMemoryRegister": regions.system_register,
    "SystemSharedMemoryUnregister": regions.system_unregister,
    "CudaSharedMemoryStatus": regions.cuda_status,
    "CudaSharedMemoryRegister": regions.cuda_register,
    "CudaSharedMemoryUnregister": regions.cuda_unregister,
}
