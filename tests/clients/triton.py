"""What Triton's own clients get from a running service, over HTTP and gRPC; run by
test_clients.py in an environment that has tritonclient. Arguments: HTTP address, gRPC address,
ids of the texts as JSON.
"""

import asyncio
import json
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory

TEXTS = ["Hello, world", "", "北京 now", "it's"]
HTTP, GRPC, EXPECTED = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
FLAT = [token_id for row in EXPECTED for token_id in row]
OFFSETS = np.cumsum([0, *map(len, EXPECTED)]).tolist()


def text_input(module, texts=TEXTS):
    tensor = module.InferInput("text", [len(texts)], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in texts], object))
    return tensor


def check(result):
    assert result.as_numpy("input_ids").tolist() == FLAT
    assert result.as_numpy("offsets").tolist() == OFFSETS


def refused(function, *words):
    try:
        function()
    except InferenceServerException as error:
        assert all(word in str(error) for word in words), str(error)
    else:
        raise AssertionError("not refused")


def check_models(client, as_json):
    options = {"as_json": True} if as_json else {}
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("gpt2")
    assert client.is_model_ready("gpt2.decode", "1")
    assert not client.is_model_ready("gpt2", "2")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata(**options)["name"] == "warptok"
    metadata = client.get_model_metadata("gpt2", **options)
    assert metadata["inputs"][0]["name"] == "text"
    config = client.get_model_config("gpt2", **options)
    config = config.get("config", config)
    assert config["input"][0]["data_type"] == "TYPE_STRING"
    index = client.get_model_repository_index(**options)
    index = index["models"] if as_json else index
    assert {"gpt2", "gpt2.decode"} <= {each["name"] for each in index}
    client.unload_model("mtdna6")
    client.load_model("mtdna6")
    refused(lambda: client.get_model_metadata("nothing"), "no vocabulary")


def check_inference(module, client, **compressed):
    check(client.infer("gpt2", [text_input(module)], **compressed))
    wanted = [module.InferRequestedOutput(name) for name in ("input_ids", "offsets")]
    check(client.infer("gpt2", [text_input(module)], outputs=wanted, request_id="7"))
    padded = client.infer("gpt2", [text_input(module)], parameters={"padding": 6, "pad_id": 50256})
    assert padded.as_numpy("input_ids").shape == (4, 6)
    assert padded.as_numpy("attention_mask").sum() == len(FLAT)
    narrow = client.infer("gpt2", [text_input(module)], parameters={"dtype": "uint16"})
    assert narrow.as_numpy("input_ids").dtype == np.uint16
    ids = module.InferInput("input_ids", [len(FLAT)], "INT32")
    ids.set_data_from_numpy(np.array(FLAT, np.int32))
    offsets = module.InferInput("offsets", [len(OFFSETS)], "INT64")
    offsets.set_data_from_numpy(np.array(OFFSETS, np.int64))
    decoded = client.infer("gpt2.decode", [ids, offsets]).as_numpy("text")
    assert [bytes(each).decode() for each in decoded] == TEXTS
    refused(lambda: client.infer("nothing", [text_input(module)]), "no vocabulary")
    wrong = text_input(module, ["x"])
    refused(lambda: client.infer("gpt2", [wrong], parameters={"specials": "x"}), "specials")
    as_json = {} if module is tritonclient.http else {"as_json": True}
    statistics = client.get_inference_statistics("gpt2", **as_json)
    assert int(statistics["model_stats"][0]["inference_count"]) >= 12


def check_shared_memory(module, client):
    one = b"Hello, world"
    raw = np.array([one], object)
    size = len(one) + 4
    source = shared_memory.create_shared_memory_region("in", "/warptok_test_in", size)
    target = shared_memory.create_shared_memory_region("out", "/warptok_test_out", 4096)
    try:
        shared_memory.set_shared_memory_region(source, [serialize_byte_tensor(raw)])
        client.register_system_shared_memory("in", "/warptok_test_in", size)
        client.register_system_shared_memory("out", "/warptok_test_out", 4096)
        tensor = module.InferInput("text", [1], "BYTES")
        tensor.set_shared_memory("in", size)
        output = module.InferRequestedOutput("input_ids")
        output.set_shared_memory("out", 4096)
        result = client.infer("gpt2", [tensor], outputs=[output])
        found = result.get_output("input_ids")
        shape = list(found["shape"] if isinstance(found, dict) else found.shape)
        ids = shared_memory.get_contents_as_numpy(target, np.int32, shape)
        assert ids.tolist() == EXPECTED[0]
        tensor.set_shared_memory("in", size + 1)
        refused(lambda: client.infer("gpt2", [tensor], outputs=[output]), "region")
        refused(lambda: client.register_system_shared_memory("no", "/warptok_none", 8), "key")
        refused(lambda: client.register_system_shared_memory("up", "/../etc/passwd", 8), "key")
    finally:
        client.unregister_system_shared_memory()
        shared_memory.destroy_shared_memory_region(source)
        shared_memory.destroy_shared_memory_region(target)


async def check_async(module, client):
    check(await client.infer("gpt2", [text_input(module)]))
    await client.close()


def check_stream(client):
    results = []
    client.start_stream(lambda result, error: results.append((result, error)))
    for _ in range(3):
        client.async_stream_infer("gpt2", [text_input(tritonclient.grpc)])
    client.stop_stream()
    assert len(results) == 3
    for result, error in results:
        assert error is None
        check(result)


with tritonclient.http.InferenceServerClient(HTTP) as http:
    check_models(http, as_json=False)
    check_inference(tritonclient.http, http)
    for encoding in ("gzip", "deflate"):
        check_inference(tritonclient.http, http, request_compression_algorithm=encoding)
    json_only = tritonclient.http.InferInput("text", [4], "BYTES")
    json_only.set_data_from_numpy(np.array(TEXTS, object), binary_data=False)
    plain = [
        tritonclient.http.InferRequestedOutput(name, binary_data=False)
        for name in ("input_ids", "offsets")
    ]
    check(http.infer("gpt2", [json_only], outputs=plain))
    check_shared_memory(tritonclient.http, http)
with tritonclient.grpc.InferenceServerClient(GRPC) as grpc:
    check_models(grpc, as_json=True)
    check_inference(tritonclient.grpc, grpc)
    check_inference(tritonclient.grpc, grpc, compression_algorithm="gzip")
    check_shared_memory(tritonclient.grpc, grpc)
    check_stream(grpc)


async def all_async():
    await check_async(tritonclient.http.aio, tritonclient.http.aio.InferenceServerClient(HTTP))
    await check_async(tritonclient.grpc.aio, tritonclient.grpc.aio.InferenceServerClient(GRPC))


asyncio.run(all_async())
print("all as expected")
