"""One set of ids through every API: JSON, plain bodies, Arrow, FASTA, gRPC, inference."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise
from multiprocessing.shared_memory import SharedMemory

import grpc
import httpx
import numpy as np
import orjson
import pyarrow as pa
import pytest

from service.apis.bulk.arrow_reader import MEDIA_TYPE
from service.apis.grpc.server import NAME, GrpcServer
from service.apis.oip.grpc_service import NAME as OIP_NAME
from service.apis.oip.tensors import make_bytes_tensor
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.protos import inference_pb2, warptok_pb2
from service.server.app import create_app
from tests.support.inputs.nasty_texts import TEXTS
from tests.support.waiting import run
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

ENGINE = CpuEngine()
LENGTH = "inference-header-content-length"
DNA = ["ACGTNacgtn" * 30, "", "A" * 500, "CA" * 300 + "RYN", "GATTACA"]
CASES = [
    ("gpt2", TEXTS),
    ("cl100k_base", TEXTS),
    ("dnabert2", DNA),
    ("hyenadna", DNA),
    ("nt_v2", DNA),
    ("mtdna6", DNA),
]
Rows = list[list[int]]
Api = Callable[["Clients", str, Sequence[str]], Awaitable[Rows]]


class Clients:
    """Clients of a service over HTTP and gRPC."""

    def __init__(self, http: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self.http, self.channel = http, channel

    def method(self, path: str, answer: type) -> grpc.aio.UnaryUnaryMultiCallable:
        return self.channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )


@contextlib.asynccontextmanager
async def open_clients() -> AsyncIterator[Clients]:
    app = create_app(Settings(preload="none", shared_memory=True), ENGINE)
    async with app.running():
        server = GrpcServer(app.oip)
        await server.start("127.0.0.1", 0)
        transport = httpx.ASGITransport(app)
        address = f"127.0.0.1:{server.port}"
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
            grpc.aio.insecure_channel(address) as channel,
        ):
            yield Clients(client, channel)
        await server.stop(0)


def split(ids: np.ndarray, offsets: np.ndarray) -> Rows:
    return [ids[b:e].tolist() for b, e in pairwise(offsets)]


async def json_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    body = {"vocabulary": name, "texts": list(texts)}
    return (await open_clients.http.post("/v1/encode/batch", json=body)).json()["ids"]


async def octets_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    octets = "application/octet-stream"
    headers = {"content-type": octets, "accept": octets}
    rows = []
    for text in texts:
        url = f"/v1/encode?vocabulary={name}"
        answer = await open_clients.http.post(url, content=text.encode(), headers=headers)
        rows.append(np.frombuffer(answer.content, np.int32).tolist())
    return rows


async def arrow_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    batch = pa.record_batch([pa.array(texts, pa.string())], names=["text"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    url, headers = f"/v1/encode/batch?vocabulary={name}", {"content-type": MEDIA_TYPE}
    answer = await open_clients.http.post(url, content=sink.getvalue(), headers=headers)
    return pa.ipc.open_stream(answer.content).read_all().column("ids").to_pylist()


async def fasta_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    """Sequences only: a FASTA file holds no other texts."""
    if texts is not DNA:
        return await json_api(open_clients, name, texts)
    content = "".join(f">{row}\n{text}\n" for row, text in enumerate(texts)).encode()
    answer = await open_clients.http.post(f"/v1/encode/fasta?vocabulary={name}", content=content)
    return pa.ipc.open_stream(answer.content).read_all().column("ids").to_pylist()


async def grpc_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    batch = Batch(texts)
    request = warptok_pb2.EncodeBatchRequest(
        vocabulary=name, data=batch.data.tobytes(), offsets=batch.offsets.tobytes()
    )
    answer = warptok_pb2.EncodeBatchResponse
    response = await open_clients.method(f"/{NAME}/EncodeBatch", answer)(request)
    return split(np.frombuffer(response.ids, np.int32), np.frombuffer(response.offsets, np.int64))


async def oip_http_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    data = make_bytes_tensor("text", Batch(texts)).data.tobytes()
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)]}
    tensor["parameters"] = {"binary_data_size": len(data)}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    url, headers = f"/v2/models/{name}/infer", {LENGTH: str(len(head))}
    answer = await open_clients.http.post(url, content=head + data, headers=headers)
    tensors = answer.content[int(answer.headers[LENGTH]) :]
    size = 8 * (len(texts) + 1)
    ids = np.frombuffer(tensors[: len(tensors) - size], np.int32)
    return split(ids, np.frombuffer(tensors[len(tensors) - size :], np.int64))


async def oip_grpc_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    pb = inference_pb2
    data = make_bytes_tensor("text", Batch(texts)).data.tobytes()
    tensor = pb.ModelInferRequest.InferInputTensor(
        name="text", datatype="BYTES", shape=[len(texts)]
    )
    request = pb.ModelInferRequest(model_name=name, inputs=[tensor], raw_input_contents=[data])
    response = await open_clients.method(f"/{OIP_NAME}/ModelInfer", pb.ModelInferResponse)(request)
    ids, offsets = response.raw_output_contents
    return split(np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64))


async def shared_memory_api(open_clients: Clients, name: str, texts: Sequence[str]) -> Rows:
    """Texts and ids in the client's memory; only where they lie goes through the socket."""
    batch = Batch(texts)
    text, half = batch.data, 1 << 20
    memory = SharedMemory(create=True, size=2 * half)
    try:
        memory.buf[: len(text)] = text.tobytes()
        region = "/v2/systemsharedmemory/region/r"
        await open_clients.http.post(
            f"{region}/register", json={"key": memory.name, "byte_size": 2 * half}
        )
        inside = {"shared_memory_region": "r", "shared_memory_byte_size": len(text)}
        place = {"shared_memory_region": "r", "shared_memory_offset": half}
        offsets = {"name": "offsets", "datatype": "INT64", "shape": [len(texts) + 1]}
        data = {"name": "text", "datatype": "UINT8", "shape": [len(text)], "parameters": inside}
        body = {
            "inputs": [data, offsets | {"data": batch.offsets.tolist()}],
            "outputs": [
                {"name": "input_ids", "parameters": place | {"shared_memory_byte_size": half}},
                {"name": "offsets"},
            ],
        }
        answer = (await open_clients.http.post(f"/v2/models/{name}/infer", json=body)).json()
        await open_clients.http.post(f"{region}/unregister")
        ids, found = answer["outputs"]
        size = ids["parameters"]["shared_memory_byte_size"]
        return split(np.frombuffer(bytes(memory.buf[half : half + size]), np.int32), found["data"])
    finally:
        memory.close()
        memory.unlink()


APIS: list[Api] = [
    json_api,
    octets_api,
    arrow_api,
    fasta_api,
    grpc_api,
    oip_http_api,
    oip_grpc_api,
    shared_memory_api,
]


@pytest.mark.parametrize(("name", "texts"), CASES, ids=[name for name, _ in CASES])
def test_every_api_gives_the_references_ids(name: str, texts: Sequence[str]) -> None:
    expected = [tokenizer.encode(load(name), text).ids for text in texts]

    async def scenario() -> None:
        async with open_clients() as open_house:
            for api in APIS:
                assert await api(open_house, name, texts) == expected, api.__name__

    run(scenario)
