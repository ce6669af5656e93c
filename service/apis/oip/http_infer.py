"""Answers inference requests over HTTP, which consist of JSON and binary tensors after it.

body    JSON | tensor | tensor ...     Inference-Header-Content-Length: bytes of the JSON
answer  JSON | tensor | tensor ...     the same
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field
from starlette.types import Receive, Scope, Send

from service.apis.oip.infer import infer
from service.apis.oip.models import check_version
from service.apis.oip.region_tensors import REGION, input_from_region, output_to_region
from service.apis.oip.requests import Inference, RequestedOutput, check_new_input
from service.apis.oip.state import OipState
from service.apis.oip.statistics import VERSION
from service.apis.oip.tensors import BYTES, Tensor, read_rows, read_tensor
from service.batching.work import ClientGone
from service.core.call import get_call, parse_size, read_timeout
from service.core.errors import InvalidRequest
from service.http.asgi_fast_path import read_body
from service.http.body.request_body import RequestBody, collect
from service.http.error_responses import make_dialect_response
from service.http.streaming_response import check_length, send_arrays
from service.operations.operation import parse
from service.operations.schemas import IgnoreExtra

LENGTH = b"inference-header-content-length"
BINARY_SIZE = "binary_data_size"
SMALL_BYTES = 1 << 16  # Larger bodies are read into memory of the engine.


class _Output(IgnoreExtra):
    name: str
    parameters: dict[str, Any] = Field({})


class _Input(_Output):
    datatype: str
    shape: list[int] = Field(max_length=16)
    data: list[Any] | None = None


class _InferDocument(IgnoreExtra):
    """The JSON of a request."""

    id: str = ""
    parameters: dict[str, Any] = Field({})
    inputs: list[_Input] = Field(max_length=16)
    outputs: list[_Output] = Field([], max_length=16)

    @property
    def surrogates(self) -> Any:
        """The parameter `surrogates`, which parse_json reads."""
        return self.parameters.get("surrogates")


class _HttpAnswer(NamedTuple):
    """An answer: the JSON, the tensors after it, and the headers that contain their sizes."""

    parts: list[NDArray[Any]]
    headers: list[tuple[bytes, bytes]]


class Infer:
    """Reads one inference request and answers it.

    Args:
        oip: the state of the protocol.
        scope: the ASGI scope of the request.
        model: the name of the model.
        version: the version of the model; "" if the path contains none.
    """

    def __init__(self, oip: OipState, scope: Scope, model: str, version: str) -> None:
        self.oip = oip
        self.service = oip.service
        self.model = model
        self.version = version
        self.call = get_call(scope)
        lengths = [value for name, value in scope["headers"] if name == LENGTH]
        self.json_length = lengths[0] if lengths else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request, run the model, and send the answer or the refusal."""
        try:
            answer = await self._answer(scope, receive)
        except ClientGone:
            self.call.is_gone = True
            return
        except Exception as error:
            await make_dialect_response(error, "oip")(scope, receive, send)
            return
        await send_arrays(send, answer.parts, answer.headers)

    async def _answer(self, scope: Scope, receive: Receive) -> _HttpAnswer:
        check_version(self.service, self.model, self.version)
        body = await self._read_body(scope, receive)
        self.call.times.read = perf_counter()
        self.call.receive = receive
        read_timeout(self.call)
        document, binary = self._parse(body)
        request = Inference(
            self.model,
            document.parameters,
            self._inputs(document, binary),
            [RequestedOutput(each.name, each.parameters) for each in document.outputs],
            self.call,
        )
        outputs = await infer(self.oip, request)
        begin = perf_counter()
        answer = _make_answer(self.oip, document, self.model, outputs)
        self.service.observer.add_serialize_time(self.call, perf_counter() - begin)
        return answer

    async def _read_body(self, scope: Scope, receive: Receive) -> NDArray[np.uint8]:
        """Read the body, into memory of the engine if it is large or compressed."""
        call, settings = self.call, self.service.settings
        limit = settings.max_body_bytes
        check_length(call.content_length, limit)
        if call.encoding is None and 0 < call.content_length <= SMALL_BYTES:
            return np.frombuffer(await read_body(receive, limit), np.uint8)
        sent = RequestBody(receive, call.encoding, limit, scope, settings.stream_idle_timeout_s)
        return await collect(sent, call.content_length, self.service.engine.host_memory)

    def _parse(self, body: NDArray[np.uint8]) -> tuple[_InferDocument, NDArray[np.uint8]]:
        """Split a body into its JSON and the binary tensors after it."""
        length = len(body) if self.json_length is None else _whole_number(self.json_length)
        if length > len(body):
            message = f"is {length}; the body has {len(body)} bytes"
            raise InvalidRequest(message, LENGTH.decode())
        if not length and self.json_length is not None:
            return _describe_raw_text(len(body)), body
        return parse(_InferDocument, body[:length].tobytes()), body[length:]

    def _inputs(self, document: _InferDocument, binary: NDArray[np.uint8]) -> dict[str, Tensor]:
        """Read each input from shared memory, from the binary tensors in order, or from JSON."""
        inputs: dict[str, Tensor] = {}
        for each in document.inputs:
            check_new_input(inputs, each.name)
            data: Any = each.data
            size, shape = each.parameters.get(BINARY_SIZE), tuple(each.shape)
            if REGION in each.parameters:
                inputs[each.name] = input_from_region(
                    self.oip, each.name, each.datatype, shape, each.parameters
                )
                continue
            if size is not None:
                if type(size) is not int or not 0 <= size <= len(binary):
                    message = f"is {size}, but only {len(binary)} bytes are left in the body"
                    raise InvalidRequest(message, f"inputs/{each.name}/{BINARY_SIZE}")
                data, binary = binary[:size], binary[size:]
            elif data is None:
                raise InvalidRequest("has no data", f"inputs/{each.name}")
            inputs[each.name] = read_tensor(each.name, each.datatype, shape, data)
        if len(binary):
            raise InvalidRequest(
                f"{len(binary)} bytes after the JSON do not belong to any input", "body"
            )
        return inputs


def _whole_number(value: bytes) -> int:
    number = parse_size(value)
    if number is None:
        raise InvalidRequest("must be a whole number of bytes", LENGTH.decode())
    return number


def _describe_raw_text(num_bytes: int) -> _InferDocument:
    """Create the JSON for a body without JSON, which is one text of `num_bytes`."""
    size = {BINARY_SIZE: num_bytes}
    return _InferDocument(
        inputs=[_Input(name="text", datatype="UINT8", shape=[num_bytes], parameters=size)]
    )


def _make_answer(
    oip: OipState, request: _InferDocument, model: str, outputs: list[Tensor]
) -> _HttpAnswer:
    """Create the answer, and write outputs to the regions that the request names."""
    all_binary = _read_flag(request.parameters, "binary_data_output", "parameters")
    requested = {each.name: each.parameters for each in request.outputs}
    described: list[dict[str, Any]] = []
    binary: list[NDArray[Any]] = []
    for tensor in outputs:
        parameters = requested.get(tensor.name, {})
        entry: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
        }
        if REGION in parameters:
            entry["parameters"] = output_to_region(oip.regions, tensor, parameters)
        elif _read_flag(parameters, "binary_data", f"outputs/{tensor.name}", all_binary):
            entry["parameters"] = {BINARY_SIZE: tensor.data.nbytes}
            binary.append(tensor.data)
        else:
            entry["data"] = _json_data(tensor)
        described.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": VERSION, "outputs": described}
    if request.id:
        document["id"] = request.id
    head = np.frombuffer(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), np.uint8)
    if not binary:
        return _HttpAnswer([head], [(b"content-type", b"application/json")])
    headers = [(b"content-type", b"application/octet-stream"), (LENGTH, b"%d" % len(head))]
    return _HttpAnswer([head, *binary], headers)


def _read_flag(parameters: dict[str, Any], name: str, where: str, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequest("must be true or false", f"{where}/{name}")
    return value


def _json_data(tensor: Tensor) -> Any:
    if tensor.datatype != BYTES:
        return tensor.data
    rows = read_rows(tensor)
    texts = [rows.row_bytes(row) for row in range(len(rows))]
    try:
        return [text.decode() for text in texts]
    except UnicodeDecodeError as error:
        message = "a text is not UTF-8; request this output with binary_data"
        raise InvalidRequest(message, f"outputs/{tensor.name}") from error
