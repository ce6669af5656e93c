"""What KServe's own clients get from a running service. Arguments: HTTP address, gRPC address."""

import asyncio
import sys

sys.path.pop(0)  # This folder, whose files have the clients' names.

import numpy
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

TEXTS = ["Hello, world", "it's"]
IDS = [15496, 11, 995, 270, 338]


def request():
    text = InferInput("text", [2], "BYTES")
    text.set_data_from_numpy(numpy.array([each.encode() for each in TEXTS], object))
    return InferRequest(model_name="gpt2", infer_inputs=[text])


async def main():
    rest = InferenceRESTClient(RESTConfig(protocol="v2", retries=1))
    url = sys.argv[1]
    assert await rest.is_server_ready(url)
    assert await rest.is_server_live(url)
    assert await rest.is_model_ready(url, "gpt2")
    answer = await rest.infer(url, request(), model_name="gpt2")
    assert answer.outputs[0].as_numpy().tolist() == IDS
    await rest.close()
    grpc = InferenceGRPCClient(sys.argv[2])
    assert await grpc.is_server_ready()
    assert await grpc.is_server_live()
    assert await grpc.is_model_ready("gpt2")
    answer = await grpc.infer(request())
    assert answer.outputs[0].as_numpy().tolist() == IDS
    await grpc.close()


asyncio.run(main())
print("all as expected")
