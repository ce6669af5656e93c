"""The Open Inference Protocol over HTTP: tensors in JSON and binary, regions, every refusal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import struct
from multiprocessing.shared_memory import SharedMemory
from unittest.mock import Mock

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.apis.oip import grpc_service
from service.apis.oip import infer as oip_infer
from service.apis.oip.requests import EncodeParameters, Inference, parse_parameters
from service.apis.oip.tensors import Tensor, make_bytes_tensor, read_rows, read_tensor
from service.core.call import Call
from service.core.errors import InvalidRequest
from service.engines.cpu.engine import CpuEngine
from service.protos import inference_pb2 as pb
from tests.support.app_client import application_of, serving
from tests.support.waiting import run
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary
from vocabularies.formats.huggingface.writer import tokenizer_json

ENGINE = CpuEngine()
TEXTS = ["Hello, world", "", "北京 now"]
IDS = [15496, 11, 995, 44293, 245, 12859, 105, 783]
OFFSETS = [0, 3, 3, 8]
INFER = "/v2/models/gpt2/infer"
LENGTH = "inference-header-content-length"
NAMED = {"x-request-id": "one"}


def text_input(data=None, **parameters):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [3], "parameters": parameters}
    return tensor if data is None else tensor | {"data": data}


def body(**fields):
    return {"inputs": [text_input(TEXTS)]} | fields


async def infer(client, document, binary=b"", path=INFER):
    head = orjson.dumps(document)
    headers = {LENGTH: str(len(head))} if binary else {}
    return await client.post(path, content=head + binary, headers=headers)


def outputs(answer):
    assert answer.status_code == 200, answer.text
    return {each["name"]: each["data"] for each in answer.json()["outputs"]}


def test_json_in_and_out():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await infer(client, body(id="7"))
            assert outputs(answer) == {"input_ids": IDS, "offsets": OFFSETS}
            document = answer.json()
            assert (document["model_name"], document["id"]) == ("gpt2", "7")
            versioned = "/v2/models/gpt2/versions/1/infer"
            assert outputs(await infer(client, body(), path=versioned))["input_ids"] == IDS

    run(scenario)


def pairs(flat):
    return np.reshape(flat, (-1, 2)).tolist()


def test_the_place_of_each_id_is_an_output_on_request():
    library = Tokenizer.from_str(tokenizer_json(load("gpt2")))
    library.no_padding()
    places = [list(span) for each in library.encode_batch(TEXTS) for span in each.offsets]

    async def scenario():
        async with serving(ENGINE) as (client, _):
            named = [{"name": "offset_mapping"}, {"name": "input_ids"}]
            got = outputs(await infer(client, body(outputs=named)))
            assert (pairs(got["offset_mapping"]), got["input_ids"]) == (places, IDS)
            for unit in ("bytes", "codepoints", "utf16"):
                asked = {"vocabulary": "gpt2", "texts": TEXTS, "return_offsets": unit}
                rows = (await client.post("/v1/encode/batch", json=asked)).json()["offsets"]
                got = outputs(await infer(client, body(parameters={"return_offsets": unit})))
                assert list(got) == ["input_ids", "offsets", "offset_mapping"]
                assert pairs(got["offset_mapping"]) == [span for row in rows for span in row]
            wrong = await infer(client, body(parameters={"return_offsets": "words"}))
            assert wrong.status_code == 422
            assert "offset_mapping" not in outputs(await infer(client, body()))

    run(scenario)


@pytest.mark.parametrize("side", ["right", "left"])
def test_places_of_padded_ids_have_the_shape_of_the_matrix(side):
    texts = ["ACGTACGTTTGA", "", "GATTACA"]

    async def scenario():
        async with serving(ENGINE) as (client, _):
            parameters = {
                "padding": "longest",
                "padding_side": side,
                "return_offsets": "codepoints",
            }
            document = {"inputs": [text_input(texts)], "parameters": parameters}
            answer = await infer(client, document, path="/v2/models/dnabert2/infer")
            shapes = {each["name"]: each["shape"] for each in answer.json()["outputs"]}
            num_rows, width = shapes["input_ids"]
            assert shapes["offset_mapping"] == [num_rows, width, 2]
            got = outputs(answer)
            mask = np.reshape(got["attention_mask"], (num_rows, width)).astype(bool)
            places = np.reshape(got["offset_mapping"], (num_rows, width, 2))
            assert not places[~mask].any()
            asked = {"vocabulary": "dnabert2", "texts": texts, "return_offsets": "codepoints"}
            rows = (await client.post("/v1/encode/batch", json=asked)).json()["offsets"]
            assert [places[row][mask[row]].tolist() for row in range(num_rows)] == rows

    run(scenario)


PATHS = [
    *(INFER, "/v2/models/gpt2/versions/1/infer", "/v2/models/gpt2.decode/infer"),
    *("/v2/models/gpt2/versions/2/infer", "/v2/models/nobody/infer", "/v2/models/a/b/infer"),
    *("/v2/models//infer", "/v2/models/gpt2%2F/infer", "/v2/models/gpt2/infer/"),
]


def test_each_path_of_inference_is_answered_and_counted_under_its_template():
    async def scenario():
        async with serving(ENGINE) as (client, service):
            came = [await client.post(path, json=body(), headers=NAMED) for path in PATHS]
            came.append(await client.post(INFER, content=b"{", headers=NAMED))
            came.append(await client.get(INFER, headers=NAMED))
            statuses = [each.status_code for each in came]
            assert statuses == [200, 200, 422, 404, 404, 404, 404, 404, 200, 400, 405]
            metrics = service.metrics.exposition()[0].decode()
            for path, number in (
                ("/v2/models/{model}/infer", 2),
                ("/v2/models/{model}/versions/{version}/infer", 1),
            ):
                counted = f'warptok_requests_total{{route="{path}",status="200"}} {number}.0'
                assert counted in metrics

    run(scenario)


def test_tensors_behind_the_json():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            data = make_bytes_tensor("text", Batch(TEXTS)).data.tobytes()
            document = {
                "inputs": [text_input(binary_data_size=len(data))],
                "parameters": {"binary_data_output": True, "dtype": "uint16"},
            }
            answer = await infer(client, document, data)
            length = int(answer.headers[LENGTH])
            described = orjson.loads(answer.content[:length])["outputs"]
            assert [each["parameters"]["binary_data_size"] for each in described] == [16, 32]
            ids = np.frombuffer(answer.content[length : length + 16], np.uint16)
            assert ids.tolist() == IDS
            assert np.frombuffer(answer.content[length + 16 :], np.int64).tolist() == OFFSETS

    run(scenario)


def test_joined_texts_with_offsets():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            joined = "".join(TEXTS).encode()
            offsets = Batch(TEXTS).offsets
            size = {"binary_data_size": len(joined)}
            document = {
                "inputs": [
                    {"name": "text", "datatype": "UINT8", "shape": [len(joined)]}
                    | {"parameters": size},
                    {"name": "offsets", "datatype": "INT64", "shape": [4]}
                    | {"parameters": {"binary_data_size": 32}},
                ]
            }
            answer = await infer(client, document, joined + offsets.tobytes())
            assert outputs(answer)["input_ids"] == IDS

    run(scenario)


LAST = 2**63 - 1
CUT = [
    ([0, 5, 12], 5, "a text has 7 bytes"),
    ([0, 5, 12], 7, ""),
    ([0, 12], 12, ""),
    ([0, 12], 11, "a text has 12 bytes"),
    ([0, 5, 3, 12], 12, "inputs/offsets[2]"),
    ([0, LAST, -LAST, 12], 12, "inputs/offsets[2]"),
    ([1, 12], 12, "not from 0 to 12"),
    ([], 12, "one offset more"),
]


@pytest.mark.parametrize(("offsets", "limit", "word"), CUT)
def test_rows_that_are_too_long_or_go_back_are_refused(offsets, limit, word):
    async def scenario():
        async with serving(ENGINE, max_text_bytes=limit) as (client, _):
            text = {"name": "text", "datatype": "UINT8", "shape": [12], "data": [*b"Hello, world"]}
            begins = {"name": "offsets", "datatype": "INT64", "shape": [len(offsets)]}
            answer = await infer(client, {"inputs": [text, begins | {"data": offsets}]})
            assert word in answer.json().get("error", "")
            assert (answer.status_code == 200) == (not word)

    run(scenario)


def test_a_body_that_is_only_the_text():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            headers = {LENGTH: "0"}
            answer = await client.post(INFER, content=b"Hello, world", headers=headers)
            assert outputs(answer) == {"input_ids": IDS[:3], "offsets": [0, 3]}

    run(scenario)


def test_a_body_may_be_small_or_large_of_known_length_or_not():
    text = b"Hello, world" * 20_000

    async def pieces(whole):
        yield whole[:7]
        yield whole[7:]

    async def scenario():
        async with serving(ENGINE, max_body_bytes=len(text)) as (client, _):
            for size in (12, 65_532, 65_544, len(text)):
                wanted = IDS[:3] * (size // 12)
                for content in (text[:size], pieces(text[:size])):
                    answer = await client.post(INFER, content=content, headers={LENGTH: "0"})
                    assert outputs(answer)["input_ids"] == wanted
            answer = await client.post(INFER, content=pieces(text + b"."), headers={LENGTH: "0"})
            assert answer.status_code == 413

    run(scenario)


def test_outputs_that_are_not_requested_are_not_made(monkeypatch):
    def made(result):
        raise AssertionError("nobody wanted the errors")

    monkeypatch.setattr(oip_infer, "make_error_tensor", made)

    async def scenario():
        async with serving(ENGINE) as (client, _):
            assert outputs(await infer(client, body()))["input_ids"] == IDS
            wanted = [{"name": "input_ids"}, {"name": "num_tokens"}]
            assert outputs(await infer(client, body(outputs=wanted)))["num_tokens"] == [3, 0, 5]
            refused = await infer(client, body(outputs=[{"name": "errors"}]))
            assert refused.status_code == 500

    run(scenario)


def test_padded_rows_and_other_outputs():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            wanted = [{"name": name} for name in ("attention_mask", "num_tokens", "errors")]
            parameters = {"padding": "longest", "pad_id": 0}
            answer = await infer(client, body(parameters=parameters, outputs=wanted))
            found = outputs(answer)
            assert found["num_tokens"] == [3, 0, 5]
            assert sum(found["attention_mask"]) == 8
            assert found["errors"] == ["", "", ""]

    run(scenario)


def test_decode_is_a_model_of_its_own():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            ids = {"name": "input_ids", "datatype": "INT32", "shape": [8], "data": IDS}
            offsets = {"name": "offsets", "datatype": "INT64", "shape": [4], "data": OFFSETS}
            path = "/v2/models/gpt2.decode/infer"
            answer = await infer(client, {"inputs": [ids, offsets]}, path=path)
            assert outputs(answer) == {"text": TEXTS}
            matrix = {"name": "input_ids", "datatype": "INT64", "shape": [2, 1]}
            answer = await infer(
                client, {"inputs": [matrix | {"data": [[15496], [11]]}]}, path=path
            )
            assert outputs(answer) == {"text": ["Hello", ","]}

    run(scenario)


def test_a_refused_row_fails_the_request_unless_errors_are_requested():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            data = make_bytes_tensor("text", Batch.from_bytes([b"Hello", b"a\xff"])).data.tobytes()
            tensor = text_input(binary_data_size=len(data)) | {"shape": [2]}
            answer = await infer(client, {"inputs": [tensor]}, data)
            assert answer.status_code == 422
            assert answer.json()["error"].startswith("text[1]: byte 1")
            wanted = [{"name": "input_ids"}, {"name": "errors"}]
            answer = await infer(client, {"inputs": [tensor], "outputs": wanted}, data)
            found = outputs(answer)
            assert found["input_ids"] == [15496]
            assert found["errors"][0] == ""
            assert found["errors"][1].startswith("not_utf8")

    run(scenario)


BAD = [
    ({"inputs": []}, 422, "inputs"),
    ({"inputs": [text_input(TEXTS[:2])]}, 422, "element 2"),
    ({"inputs": [text_input([1, 2, 3])]}, 422, "strings"),
    ({"inputs": [text_input(TEXTS) | {"datatype": "FP32"}]}, 422, "FP32"),
    ({"inputs": [text_input(TEXTS) | {"shape": [-1]}]}, 422, "negative"),
    ({"inputs": [text_input()]}, 422, "no data"),
    ({"inputs": [text_input(binary_data_size=5)]}, 422, "left in the body"),
    (
        {"inputs": [text_input(TEXTS), text_input(TEXTS) | {"name": "more"}]},
        422,
        "the inputs must be",
    ),
    ({"inputs": [text_input(TEXTS), text_input(TEXTS)]}, 422, "inputs/text: is given twice"),
    (body(parameters={"maximum": 5}), 422, "parameters/maximum: "),
    (body(parameters={"dtype": "uint8"}), 422, "parameters/dtype: "),
    (body(parameters={"if_digest": "no"}), 412, "parameters/if_digest: "),
    (body(parameters={"binary_data_output": "false"}), 422, "parameters/binary_data_output: "),
    (
        body(outputs=[{"name": "input_ids", "parameters": {"binary_data": 0}}]),
        422,
        "outputs/input_ids/binary_data: ",
    ),
    (body(outputs=[{"name": "logits"}]), 422, "logits"),
    (
        body(outputs=[{"name": "input_ids", "parameters": {"classification": 3}}]),
        422,
        "outputs/input_ids/classification",
    ),
    (body(parameters={"padding": "longest"}), 422, "parameters/padding: "),
    (body(parameters={"padding": -1, "pad_id": 0}), 422, "parameters/padding: "),
    # No row would be that long, but memory for one would be allocated.
    (
        {
            "inputs": [text_input([]) | {"shape": [0]}],
            "parameters": {"padding": 1 << 40, "pad_id": 0},
        },
        422,
        "padding",
    ),
    ({"inputs": [text_input(shared_memory_region="x", shared_memory_byte_size=4)]}, 403, "off"),
]


@pytest.mark.parametrize(("document", "status", "word"), BAD)
def test_a_refusal_is_json_with_a_string_error(document, status, word):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await infer(client, document)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/json"
            assert word in answer.json()["error"]

    run(scenario)


@pytest.mark.parametrize(
    ("content", "headers"),
    [(b"{", {}), (b"{}", {LENGTH: "9"}), (b"{}", {LENGTH: "x"}), (b'{"inputs": 5}', {})],
)
def test_a_body_that_cannot_be_read_is_refused(content, headers):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post(INFER, content=content, headers=headers)
            assert answer.status_code in (400, 422)
            assert isinstance(answer.json()["error"], str)

    run(scenario)


def id_input(name="input_ids", shape=(2,)):
    return {"name": name, "datatype": "INT32", "shape": shape, "data": [15496, 11]}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([id_input(), id_input("mask")], "not input_ids, mask"),
        ([id_input(shape=(1, 1, 2))], "inputs/input_ids: must have one or two dimensions, not 3"),
    ],
)
def test_decode_refuses_inputs_that_it_would_ignore(inputs, words):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await infer(client, {"inputs": inputs}, path="/v2/models/gpt2.decode/infer")
            assert answer.status_code == 422
            assert words in answer.json()["error"]

    run(scenario)


def typed_text(*texts, shape=None):
    contents = pb.InferTensorContents(bytes_contents=texts)
    shape = [len(texts)] if shape is None else shape
    tensor = pb.ModelInferRequest.InferInputTensor
    return tensor(name="text", datatype="BYTES", shape=shape, contents=contents)


RAW = b"\2\0\0\0Hi"


@pytest.mark.parametrize(
    ("inputs", "raw", "where"),
    [
        ([typed_text(b"Hi", shape=[-1])], [], "text"),
        ([typed_text(b"Hi", shape=[-1, -1])], [], "text"),
        ([typed_text(b"Hi", shape=[1] * 9)], [], "text"),
        ([typed_text(b"Hi"), typed_text(b"a", b"b")], [], "inputs/text"),
        ([typed_text(shape=[1])], [RAW, RAW], "raw_input_contents"),
        ([typed_text(b"Hi")], [RAW], "inputs/text"),
    ],
)
def test_grpc_refuses_wrong_shapes_and_contents_that_it_would_ignore(inputs, raw, where):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            request = pb.ModelInferRequest(model_name="gpt2", inputs=inputs, raw_input_contents=raw)
            with pytest.raises(InvalidRequest) as caught:
                await grpc_service.model_infer(application_of(client).oip, Call(), request)
            assert caught.value.where == where

    run(scenario)


def test_models_are_described():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            assert (await client.get("/v2")).json()["name"] == "warptok"
            assert (await client.get("/v2/health/live")).json() == {"live": True}
            while (ready := await client.get("/v2/health/ready")).status_code == 503:
                assert ready.json() == {"live": True, "ready": False}
                await asyncio.sleep(0.02)
            assert ready.json() == {"live": True, "ready": True}
            metadata = (await client.get("/v2/models/gpt2/versions/1")).json()
            assert metadata["inputs"][0] == {"name": "text", "datatype": "BYTES", "shape": [-1]}
            config = (await client.get("/v2/models/gpt2.decode/config")).json()
            assert config["output"][0]["data_type"] == "TYPE_STRING"
            assert (await client.get("/v2/models/gpt2/ready")).status_code == 200
            for path in ("/v2/models/nothing", "/v2/models/gpt2/versions/2"):
                answer = await client.get(path)
                assert (answer.status_code, [*answer.json()]) == (404, ["error"])

    run(scenario)


@pytest.mark.parametrize(
    ("name", "version", "is_ready"),
    [("gpt2", "", True), ("gpt2.decode", "1", True), ("gpt2", "2", False), ("nothing", "", False)],
)
def test_a_model_that_is_not_there_is_not_ready_which_grpc_calls_no_error(name, version, is_ready):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            oip = application_of(client).oip
            request = pb.ModelReadyRequest(name=name, version=version)
            assert (await grpc_service.model_ready(oip, Call(), request)).ready == is_ready

    run(scenario)


def test_the_repository_lists_loads_and_unloads():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            states = {}

            async def look():
                listed = (await client.post("/v2/repository/index")).json()
                states.update({each["name"]: each["state"] for each in listed})

            await look()
            assert states["gpn"] == "UNAVAILABLE"
            assert (await client.post("/v2/repository/models/gpn/load")).status_code == 200
            await look()
            assert states["gpn"] == states["gpn.decode"] == "READY"
            assert (await client.post("/v2/repository/models/gpn/unload")).status_code == 200
            await look()
            assert states["gpn"] == "UNAVAILABLE"

    run(scenario)


@pytest.mark.parametrize("name", ["config", "file:1/tokenizer.json"])
def test_a_model_is_not_loaded_from_what_the_request_brings(name):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            path, document = "/v2/repository/models/gpn/load", {"parameters": {name: "{}"}}
            answer = await client.post(path, json=document)
            assert answer.status_code == 422
            assert answer.json()["error"].startswith(f"parameters/{name}: ")
            assert (await client.post(path, content=b"[")).status_code == 400
            request = pb.RepositoryModelLoadRequest(model_name="gpn")
            request.parameters[name].string_param = "{}"
            with pytest.raises(InvalidRequest) as caught:
                await grpc_service.repository_load(application_of(client).oip, Call(), request)
            assert caught.value.where == f"parameters/{name}"

    run(scenario)


@pytest.mark.parametrize(("ends_at", "is_earlier"), [(5.0, True), (float("inf"), False)])
def test_a_timeout_does_not_defer_the_deadline_of_the_call(ends_at, is_earlier):
    call = Call()
    call.ends_at = ends_at
    parse_parameters(EncodeParameters, Inference("gpt2", {"timeout": 10**9}, {}, [], call))
    assert (call.ends_at == ends_at) == is_earlier


def test_statistics_count_rows_requests_and_failures():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await infer(client, body())
            await infer(client, body(parameters={"dtype": "int8"}))
            found = (await client.get("/v2/models/gpt2/stats")).json()["model_stats"][0]
            assert (found["inference_count"], found["execution_count"]) == (3, 1)
            assert found["inference_stats"]["success"]["count"] == 1
            assert found["inference_stats"]["fail"]["count"] == 1
            await infer(client, body(), path="/v2/models/nothing/infer")
            assert "nothing" not in application_of(client).oip.statistics.models

    run(scenario)


def test_statistics_of_a_deleted_vocabulary_go_with_it():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            (document,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
            for _ in range(2):
                await client.put("/v1/vocabularies/mine", content=document)
                await infer(client, body(), path="/v2/models/mine/infer")
                ids = {"name": "input_ids", "datatype": "INT32", "shape": [1], "data": [1]}
                decode = {"inputs": [ids]}
                await infer(client, decode, path="/v2/models/mine.decode/infer")
                assert set(application_of(client).oip.statistics.models) == {"mine", "mine.decode"}
                assert (await client.delete("/v1/vocabularies/mine")).status_code == 204
                assert application_of(client).oip.statistics.models == {}

    run(scenario)


@contextlib.contextmanager
def region(size):
    """A client's shared memory; Python must not remove it a second time."""
    memory = SharedMemory(create=True, size=size)
    try:
        yield memory
    finally:
        memory.close()
        with contextlib.suppress(FileNotFoundError):
            memory.unlink()


def test_a_text_in_shared_memory_and_its_ids_there():
    async def scenario():
        async with serving(ENGINE, shared_memory=True) as (client, _):
            with region(4096) as memory:
                text = b"Hello, world"
                memory.buf[100 : 104 + len(text)] = struct.pack("<I", len(text)) + text
                url = "/v2/systemsharedmemory/region/r"
                registered = {"key": memory.name, "byte_size": 4096, "offset": 0}
                answer = await client.post(f"{url}/register", json=registered)
                assert answer.status_code == 200
                assert (await client.get(f"{url}/status")).json()[0]["byte_size"] == 4096
                place = {"shared_memory_region": "r", "shared_memory_offset": 100}
                tensor = text_input(**place, shared_memory_byte_size=4 + len(text)) | {"shape": [1]}
                out = place | {"shared_memory_offset": 1024, "shared_memory_byte_size": 64}
                document = {
                    "inputs": [tensor],
                    "outputs": [{"name": "input_ids", "parameters": out}],
                }
                answer = await infer(client, document)
                (described,) = answer.json()["outputs"]
                assert described["parameters"]["shared_memory_byte_size"] == 12
                assert np.frombuffer(memory.buf[1024:1036], np.int32).tolist() == IDS[:3]
                document["outputs"][0]["parameters"]["shared_memory_byte_size"] = 8
                answer = await infer(client, document)
                assert "has room for" in answer.json()["error"]
                assert (await client.post("/v2/systemsharedmemory/unregister")).status_code == 200
                assert application_of(client).oip.regions.system == {}
                assert (await infer(client, document)).status_code == 404

    run(scenario)


def test_a_region_that_its_client_cut_short_is_refused_and_nothing_dies():
    async def scenario():
        async with serving(ENGINE, shared_memory=True) as (client, _):
            with region(8192) as memory:
                await application_of(client).oip.regions.register_system("r", memory.name, 0, 8192)
                with open(f"/dev/shm/{memory.name}", "r+b") as file:
                    file.truncate(16)
                tensor = text_input(shared_memory_region="r", shared_memory_byte_size=8000)
                answer = await infer(client, {"inputs": [tensor | {"shape": [1]}]})
                assert answer.status_code == 422
                assert "ends at byte 16" in answer.json()["error"]

    run(scenario)


@pytest.mark.parametrize("size", [True, -1, 8.0, "8", None, 1 << 64])
def test_the_size_of_a_text_in_shared_memory_is_checked(size):
    async def scenario():
        async with serving(ENGINE, shared_memory=True) as (client, _):
            with region(4096) as memory:
                await application_of(client).oip.regions.register_system("r", memory.name, 0, 4096)
                place = {"shared_memory_region": "r", "shared_memory_byte_size": size}
                document = json.dumps({"inputs": [text_input(**place)]})  # orjson has 64 bits.
                answer = await client.post(INFER, content=document)
                assert answer.status_code in (413, 422), answer.text

    run(scenario)


def test_ids_for_which_the_file_system_of_a_region_has_no_room_are_refused(monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "pwritev", Mock(side_effect=full))

    async def scenario():
        async with serving(ENGINE, shared_memory=True) as (client, _):
            with region(8192) as memory:
                await application_of(client).oip.regions.register_system("r", memory.name, 0, 8192)
                out = {"shared_memory_region": "r", "shared_memory_byte_size": 8192}
                answer = await infer(
                    client, body(outputs=[{"name": "input_ids", "parameters": out}])
                )
                assert answer.status_code == 422
                assert answer.json()["error"].startswith("r: ")
                assert "cannot be written: No space left" in answer.json()["error"]

    run(scenario)


REGISTRATIONS = [
    ({"key": "../etc/passwd", "byte_size": 8}, 422),
    ({"key": "/no_such_region", "byte_size": 8}, 422),
    ({"key": "NAME", "byte_size": 999_999}, 422),
    ({"key": "NAME", "byte_size": 8, "offset": -8}, 422),
    ({"key": "NAME", "byte_size": 0}, 422),
    ({"byte_size": 8}, 422),
]


@pytest.mark.parametrize(("wanted", "status"), REGISTRATIONS)
def test_a_registration_is_checked(wanted, status):
    async def scenario():
        async with serving(ENGINE, shared_memory=True) as (client, _):
            with region(64) as memory:
                if wanted.get("key") == "NAME":
                    wanted["key"] = memory.name
                url = "/v2/systemsharedmemory/region/r/register"
                answer = await client.post(url, json=wanted)
                assert answer.status_code == status
                assert isinstance(answer.json()["error"], str)

    run(scenario)


def test_regions_have_distinct_names_and_a_largest_number():
    async def scenario():
        async with serving(ENGINE, shared_memory=True, max_regions=2) as (client, _):
            with region(64) as memory:
                answers = []
                for name in ("a", "a", "b", "c"):
                    url = f"/v2/systemsharedmemory/region/{name}/register"
                    wanted = {"key": memory.name, "byte_size": 64}
                    answers.append((await client.post(url, json=wanted)).status_code)
                assert answers == [200, 409, 200, 413]

    run(scenario)


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_elements_with_their_lengths_are_the_elements(rows):
    tensor = make_bytes_tensor("text", Batch.from_bytes(rows))
    back = read_rows(tensor)
    assert [back.row_bytes(row) for row in range(len(back))] == rows


@given(st.binary(max_size=40), st.integers(0, 5))
def test_any_bytes_are_elements_or_refused(data, count):
    tensor = Tensor("text", "BYTES", (count,), np.frombuffer(data, np.uint8))
    with contextlib.suppress(InvalidRequest):
        assert len(read_rows(tensor)) == count


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(InvalidRequest, match="does not fit"):
        read_tensor("input_ids", "INT32", (1,), [2**40])
