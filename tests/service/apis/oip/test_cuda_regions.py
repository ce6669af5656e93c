"""Device memory of clients as inputs and outputs: on an emulated device, and on a real one."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
import uuid
from pathlib import Path

import grpc
import numpy as np
import pytest

from gpu.errors import BadHandle, DeviceUnavailable
from gpu.memory.ipc import HANDLE_BYTES, SharedDeviceMemory
from gpu.runtime.cuda_device import CudaDevice
from service.apis.grpc.server import GrpcServer
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.protos import inference_pb2 as pb
from tests.support.app_client import application_of, serving
from tests.support.emulation.device import EmulatedDevice
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.gpus.several_fake_gpus import open_together
from tests.support.waiting import run, until
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

CPU = CpuEngine()
TEXT = b"the ids are written where the client wants them"
URL = "/v2/cudasharedmemory/region/r"
SERVICE = "/inference.GRPCInferenceService/"


def engine_and_device() -> tuple[HybridEngine, EmulatedDevice]:
    gpu = FakeGpu(CPU)
    engine = HybridEngine(CPU, gpu.opened, 1000)
    engine.settle()
    return engine, gpu.device


def handle_of(address: int) -> bytes:
    return b"%d" % address + bytes(HANDLE_BYTES - len(b"%d" % address))


def register_body(handle: bytes, byte_size: int) -> dict[str, object]:
    raw = {"b64": base64.b64encode(handle).decode()}
    return {"raw_handle": raw, "device_id": 0, "byte_size": byte_size}


def ids_of(text: bytes) -> list[int]:
    return CPU.encode(load("gpt2"), Batch.from_bytes([text])).ids.tolist()


def infer_body(size: int = 512) -> dict[str, object]:
    place = {"shared_memory_region": "r", "shared_memory_byte_size": len(TEXT)}
    text = {"name": "text", "datatype": "UINT8", "shape": [len(TEXT)], "parameters": place}
    out = {"shared_memory_region": "r", "shared_memory_byte_size": size}
    output = {"name": "input_ids", "parameters": out | {"shared_memory_offset": 1024}}
    return {"inputs": [text], "outputs": [output]}


def test_a_text_on_the_device_and_its_ids_there():
    engine, device = engine_and_device()

    async def scenario():
        address = device.allocate(4096)
        block = device.blocks[address]
        block[: len(TEXT)] = np.frombuffer(TEXT, np.uint8)
        async with serving(engine, shared_memory=True) as (client, _):
            body = register_body(handle_of(address), 4096)
            assert (await client.post(URL + "/register", json=body)).status_code == 200
            status = (await client.get("/v2/cudasharedmemory/status")).json()
            assert status == [{"name": "r", "device_id": 0, "byte_size": 4096}]
            answer = await client.post("/v2/models/gpt2/infer", json=infer_body())
            assert answer.status_code == 200, answer.text
            (described,) = answer.json()["outputs"]
            size = described["parameters"]["shared_memory_byte_size"]
            assert block[1024 : 1024 + size].view(np.int32).tolist() == ids_of(TEXT)
            larger = register_body(handle_of(address), 4097)
            refused = await client.post("/v2/cudasharedmemory/region/x/register", json=larger)
            assert refused.status_code == 422
            assert "byte_size: the memory has 4096 bytes, not 4097" in refused.text
            refused = await client.post("/v2/models/gpt2/infer", json=infer_body(size=8))
            assert "has room for 8" in refused.text
            refused = await client.post("/v2/models/gpt2/infer", json=infer_body(size=4000))
            assert "exceed the region of 4096" in refused.text
            assert (await client.post(URL + "/unregister")).status_code == 200
            assert (await client.get(URL + "/status")).status_code == 404
        assert device.num_shared == 0

    run(scenario)


@pytest.mark.parametrize("device_id", [0, 1])
def test_of_several_gpus_the_one_that_has_the_region_serves_it(device_id):
    gpus = [FakeGpu(CPU), FakeGpu(CPU)]
    engine = HybridEngine(CPU, open_together(*gpus), 1)
    device = gpus[1].device

    async def scenario():
        address = device.allocate(4096)
        block = device.blocks[address]
        block[: len(TEXT)] = np.frombuffer(TEXT, np.uint8)
        async with serving(engine, shared_memory=True, preload="gpt2") as (client, service):
            await until(lambda: service.preloaded)
            body = register_body(handle_of(address), 4096) | {"device_id": device_id}
            assert (await client.post(URL + "/register", json=body)).status_code == 200
            for _ in range(3):
                answer = await client.post("/v2/models/gpt2/infer", json=infer_body())
                assert answer.status_code == 200, answer.text
            (described,) = answer.json()["outputs"]
            size = described["parameters"]["shared_memory_byte_size"]
            assert block[1024 : 1024 + size].view(np.int32).tolist() == ids_of(TEXT)
            assert [gpu.num_shared for gpu in gpus] == [0, 3]
            larger = register_body(handle_of(address), 4097) | {"device_id": device_id}
            refused = await client.post("/v2/cudasharedmemory/region/x/register", json=larger)
            assert "the memory has 4096 bytes, not 4097" in refused.text
            unknown = register_body(handle_of(1), 64)
            refused = await client.post("/v2/cudasharedmemory/region/x/register", json=unknown)
            assert refused.status_code == 422 and "no block" in refused.text
            members = engine.vocabularies.opened.several.members
            members[0].state, members[0].retry_at = "resting", float("inf")
            refused = await client.post("/v2/cudasharedmemory/region/x/register", json=unknown)
            assert refused.status_code == 503 and "is not used at the moment" in refused.text
        assert device.num_shared == 0

    run(scenario)


def test_the_same_over_grpc_and_nothing_stays_open():
    engine, device = engine_and_device()

    async def scenario():
        address = device.allocate(4096)
        async with serving(engine, shared_memory=True) as (client, _):
            server = GrpcServer(application_of(client).oip)
            await server.start("127.0.0.1", 0)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:

                async def call(name, request, answer):
                    serialize = type(request).SerializeToString
                    method = channel.unary_unary(SERVICE + name, serialize, answer.FromString)
                    return await method(request)

                register = pb.CudaSharedMemoryRegisterRequest(
                    name="r", raw_handle=handle_of(address), device_id=0, byte_size=4096
                )
                answer = pb.CudaSharedMemoryRegisterResponse
                await call("CudaSharedMemoryRegister", register, answer)
                request = pb.CudaSharedMemoryStatusRequest()
                status = await call(
                    "CudaSharedMemoryStatus", request, pb.CudaSharedMemoryStatusResponse
                )
                assert status.regions["r"].byte_size == 4096
                with pytest.raises(grpc.aio.AioRpcError, match="registered already"):
                    await call("CudaSharedMemoryRegister", register, answer)
                assert device.num_shared == 1
            await server.stop(0)
        assert device.num_shared == 0  # The service has ended.

    run(scenario)


REFUSED = [
    (handle_of(7), 64, "no block of this device"),
    (b"short", 64, "cudaIpcMemHandle_t has 64"),
    (handle_of(7), 0, "0 bytes of device 0 cannot be registered"),
]


@pytest.mark.parametrize(("handle", "byte_size", "message"), REFUSED)
def test_what_cannot_be_registered_is_refused_with_a_reason(handle, byte_size, message):
    engine, _ = engine_and_device()

    async def scenario():
        async with serving(engine, shared_memory=True) as (client, _):
            body = register_body(handle, byte_size)
            answer = await client.post(URL + "/register", json=body)
            assert answer.status_code == 422
            assert message in answer.text

    run(scenario)


def test_without_a_gpu_or_without_leave_it_is_refused():
    async def scenario():
        body = register_body(handle_of(7), 64)
        async with serving(CPU, shared_memory=True) as (client, _):
            answer = await client.post(URL + "/register", json=body)
            assert (answer.status_code, "no GPU" in answer.text) == (422, True)
        async with serving(CPU) as (client, _):
            assert (await client.post(URL + "/register", json=body)).status_code == 403

    run(scenario)


def test_memory_that_a_new_process_of_the_gpu_cannot_open_again_is_refused(monkeypatch):
    """The client has ended, or freed it, and kept it registered."""
    engine, device = engine_and_device()

    def fail(*_):
        raise BadHandle("the device does not know the handle")

    async def scenario():
        async with serving(engine, shared_memory=True) as (client, _):
            body = register_body(handle_of(device.allocate(4096)), 4096)
            assert (await client.post(URL + "/register", json=body)).status_code == 200
            monkeypatch.setattr(engine, "encode_shared", fail_on_device)
            monkeypatch.setattr(SharedDeviceMemory, "read", fail)
            refused = await client.post("/v2/models/gpt2/infer", json=infer_body())
            assert refused.status_code == 422
            assert refused.json()["error"].startswith("r: the region cannot be opened again")

    def fail_on_device(*_):
        return None  # The engine counts the error, and leaves the texts to the host.

    run(scenario)


def test_bounds_are_checked_before_the_device_sees_them():
    device = EmulatedDevice()
    memory = SharedDeviceMemory(device, handle_of(device.allocate(64)), 64)
    for offset, size in ((-1, 2), (60, 5), (65, 0)):
        with pytest.raises(IndexError):
            memory.read(offset, np.zeros(size, np.uint8))
        with pytest.raises(IndexError):
            memory.write(offset, np.zeros(size, np.uint8))
    memory.close()
    with pytest.raises(BadHandle):
        SharedDeviceMemory(device, handle_of(1), 64)


OWNER = """
import sys
import cupy
memory = cupy.arange(256, dtype=cupy.uint8)
cupy.cuda.runtime.deviceSynchronize()
print(cupy.cuda.runtime.ipcGetMemHandle(memory.data.ptr).hex(), flush=True)
sys.stdin.readline()
print(bytes(memory[:4].get()).hex(), flush=True)
"""


@pytest.mark.gpu
def test_memory_of_another_process_on_a_real_device():
    try:
        device = CudaDevice()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True
    ) as owner:
        memory = SharedDeviceMemory(device, bytes.fromhex(owner.stdout.readline()), 256)
        out = np.zeros(16, np.uint8)
        memory.read(8, out)
        assert out.tolist() == [*range(8, 24)]
        memory.write(0, np.array([9, 8, 7, 6], np.uint8))
        memory.close()
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert owner.stdout.readline().strip() == "09080706"
    with pytest.raises(BadHandle):
        SharedDeviceMemory(device, bytes(HANDLE_BYTES), 256)


WORDS = b"It's unzipped and long enough"
KEY = "warptok-test-" + uuid.uuid4().hex


def shared_infer(size: int, *, dtype: str = "int32", offsets: list[int] | None = None) -> dict:
    """A text at the beginning of region r, its ids in region o from byte 16 on."""
    place = {"shared_memory_region": "r", "shared_memory_byte_size": len(WORDS)}
    inputs = [{"name": "text", "datatype": "UINT8", "shape": [len(WORDS)], "parameters": place}]
    if offsets is not None:
        shape = [len(offsets)]
        inputs.append({"name": "offsets", "datatype": "INT64", "shape": shape, "data": offsets})
    out = {"shared_memory_region": "o", "shared_memory_byte_size": size}
    ids = {"name": "input_ids", "parameters": out | {"shared_memory_offset": 16}}
    outputs = [ids, {"name": "offsets"}]
    return {"inputs": inputs, "outputs": outputs, "parameters": {"dtype": dtype}}


@contextlib.contextmanager
def regions(kind: str, device: EmulatedDevice):
    """Yield bodies that register the regions r and o, and functions that access their memory."""
    if kind == "cuda":
        blocks = [device.blocks[device.allocate(4096)] for _ in "ro"]
        bodies = [register_body(handle_of(block.ctypes.data), 4096) for block in blocks]
        yield bodies, blocks
        return
    paths = [Path(f"/dev/shm/{KEY}-{name}") for name in "ro"]
    try:
        blocks = [np.memmap(path, np.uint8, "w+", shape=4096) for path in paths]
        yield [{"key": path.name, "offset": 0, "byte_size": 4096} for path in paths], blocks
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["cuda", "system"])
def test_a_device_reads_and_writes_shared_memory_where_it_lies(kind):
    gpu = FakeGpu(CPU)
    engine = HybridEngine(CPU, gpu.opened, 1)
    engine.load(load("gpt2"))
    engine.settle()

    async def scenario():
        async with serving(engine, shared_memory=True) as (client, service):
            with regions(kind, gpu.device) as (bodies, (text, out)):
                for name, body in zip("ro", bodies, strict=True):
                    url = f"/v2/{kind}sharedmemory/region/{name}/register"
                    assert (await client.post(url, json=body)).status_code == 200
                text[: len(WORDS)] = np.frombuffer(WORDS, np.uint8)
                for dtype, offsets in (("int32", None), ("uint16", [0, 4, 4, len(WORDS)])):
                    before = gpu.num_shared
                    body = shared_infer(1000, dtype=dtype, offsets=offsets)
                    answer = await client.post("/v2/models/gpt2/infer", json=body)
                    assert answer.status_code == 200, answer.text
                    ids, ends = answer.json()["outputs"]
                    rows = [WORDS] if offsets is None else [b"It's", b"", WORDS[4:]]
                    wanted = CPU.encode(load("gpt2"), Batch.from_bytes(rows))
                    size = ids["parameters"]["shared_memory_byte_size"]
                    assert (ids["datatype"], ids["shape"]) == (dtype.upper(), [len(wanted.ids)])
                    assert out[16 : 16 + size].view(dtype).tolist() == wanted.ids.tolist()
                    assert ends["data"] == wanted.offsets.tolist()
                    assert gpu.num_shared == before + 1  # Not by way of the host.
                # Where the host is needed it answers, and says what is wrong.
                answer = await client.post("/v2/models/gpt2/infer", json=shared_infer(8))
                assert "has room for 8" in answer.text
                assert engine.fallbacks.counts() == {"shared_memory": 1}
                text[3] = 0xFF
                answer = await client.post("/v2/models/gpt2/infer", json=shared_infer(1000))
                assert (answer.status_code, "UTF-8" in answer.text) == (422, True)
                assert engine.fallbacks.counts() == {"shared_memory": 1, "option": 1}
                text[3] = ord("s")
                gpu.failing_shared = 1
                answer = await client.post("/v2/models/gpt2/infer", json=shared_infer(1000))
                assert answer.status_code == 200
                assert engine.fallbacks.counts()["device_error"] == 1
                assert service.batcher.queue_bytes == 0
        assert gpu.device.num_shared == 0
        assert gpu.device.pinned == {}

    run(scenario)
