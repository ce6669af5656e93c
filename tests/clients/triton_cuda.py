"""What Triton's own clients get of device memory that they share; run by test_clients.py as
triton.py is, on a machine with a GPU. Arguments: HTTP address, gRPC address, ids of the sentence
twice as JSON.
"""

import json
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonclient.utils import cuda_shared_memory as cuda

COUNT = 40_000
TEXT = np.frombuffer(b"It's text on the device. " * COUNT, np.uint8)
HTTP, GRPC, TWICE = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
EXPECTED = TWICE[:7] + TWICE[7:14] * (COUNT - 1) + TWICE[14:]
SIZES = {"text": TEXT.nbytes, "offsets": 16, "ids": 4 * TEXT.nbytes, "small": 64}


def register(client, handles):
    for name, handle in handles.items():
        raw = cuda.get_raw_handle(handle)
        client.register_cuda_shared_memory(name, raw, 0, SIZES[name])


def texts(module, size, offsets=True):
    text = module.InferInput("text", [size], "UINT8")
    text.set_shared_memory("text", size)
    begins = module.InferInput("offsets", [2], "INT64")
    begins.set_shared_memory("offsets", 16)
    return [text, begins] if offsets else [text]


def check(module, client, handles, region, size, wanted, **options):
    ids = module.InferRequestedOutput("input_ids")
    ids.set_shared_memory(region, SIZES[region])
    result = client.infer("gpt2", texts(module, size, **options), outputs=[ids])
    found = result.get_output("input_ids")
    shape = list(found["shape"] if isinstance(found, dict) else found.shape)
    assert shape == [len(wanted)], shape
    assert cuda.get_contents_as_numpy(handles[region], np.int32, shape).tolist() == wanted


def check_all(module, client, handles):
    client.unregister_cuda_shared_memory()
    register(client, handles)
    status = client.get_cuda_shared_memory_status()
    assert len(status if isinstance(status, list) else status.regions) == len(SIZES)
    cuda.set_shared_memory_region(handles["offsets"], [np.array([0, TEXT.nbytes])])
    check(module, client, handles, "ids", TEXT.nbytes, EXPECTED)
    check(module, client, handles, "ids", TEXT.nbytes, EXPECTED, offsets=False)
    check(module, client, handles, "small", 24, EXPECTED[:7], offsets=False)
    try:
        check(module, client, handles, "small", TEXT.nbytes, [], offsets=False)
    except InferenceServerException as error:
        assert "fit" in str(error), str(error)
    else:
        raise AssertionError("not refused")
    client.unregister_cuda_shared_memory("small")
    client.unregister_cuda_shared_memory()


made = {name: cuda.create_shared_memory_region(name, size, 0) for name, size in SIZES.items()}
try:
    cuda.set_shared_memory_region(made["text"], [TEXT])
    with tritonclient.http.InferenceServerClient(HTTP) as http:
        check_all(tritonclient.http, http, made)
    with tritonclient.grpc.InferenceServerClient(GRPC) as grpc:
        check_all(tritonclient.grpc, grpc, made)
finally:
    for each in made.values():
        cuda.destroy_shared_memory_region(each)
print("all as expected")
