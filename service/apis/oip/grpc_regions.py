"""Implements the calls of inference.GRPCInferenceService that manage shared memory."""

from __future__ import annotations

from service.apis.oip.state import OipState
from service.core.call import Call
from service.protos import inference_pb2 as pb


async def system_status(
    oip: OipState, call: Call, request: pb.SystemSharedMemoryStatusRequest
) -> pb.SystemSharedMemoryStatusResponse:
    """List the registered regions of system memory, or the one that is named."""
    status = pb.SystemSharedMemoryStatusResponse
    regions = {
        each.name: status.RegionStatus(
            name=each.name, key=each.key, offset=each.offset, byte_size=each.byte_size
        )
        for each in oip.regions.system_status(request.name)
    }
    return status(regions=regions)


async def system_register(
    oip: OipState, call: Call, request: pb.SystemSharedMemoryRegisterRequest
) -> pb.SystemSharedMemoryRegisterResponse:
    """Register a region of system memory for inputs and outputs."""
    regions = oip.regions
    await regions.register_system(request.name, request.key, request.offset, request.byte_size)
    return pb.SystemSharedMemoryRegisterResponse()


async def system_unregister(
    oip: OipState, call: Call, request: pb.SystemSharedMemoryUnregisterRequest
) -> pb.SystemSharedMemoryUnregisterResponse:
    """Unregister the named region of system memory, or all of them without a name."""
    await oip.regions.unregister_system(request.name)
    return pb.SystemSharedMemoryUnregisterResponse()


async def cuda_status(
    oip: OipState, call: Call, request: pb.CudaSharedMemoryStatusRequest
) -> pb.CudaSharedMemoryStatusResponse:
    """List the registered regions of device memory, or the one that is named."""
    status = pb.CudaSharedMemoryStatusResponse
    regions = {
        each.name: status.RegionStatus(
            name=each.name, device_id=each.device_id, byte_size=each.byte_size
        )
        for each in oip.regions.cuda_status(request.name)
    }
    return status(regions=regions)


async def cuda_register(
    oip: OipState, call: Call, request: pb.CudaSharedMemoryRegisterRequest
) -> pb.CudaSharedMemoryRegisterResponse:
    """Register device memory for inputs and outputs."""
    regions = oip.regions
    await regions.register_cuda(
        request.name, request.raw_handle, request.device_id, request.byte_size
    )
    return pb.CudaSharedMemoryRegisterResponse()


async def cuda_unregister(
    oip: OipState, call: Call, request: pb.CudaSharedMemoryUnregisterRequest
) -> pb.CudaSharedMemoryUnregisterResponse:
    """Unregister the named region of device memory, or all of them without a name."""
    await oip.regions.unregister_cuda(request.name)
    return pb.CudaSharedMemoryUnregisterResponse()
