"""The valid HTTP requests that fuzzing starts from, for every route but uploads."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from service.apis.oip.tensors import make_bytes_tensor
from tests.fuzz.inputs.messages import CANARY, DNA, ENCODERS, TEXT, Message
from vocabularies.batch.batch import Batch

JSON, OCTETS = b"application/json", b"application/octet-stream"
ARROW = b"application/vnd.apache.arrow.stream"


def requests() -> Iterator[Message]:
    """Yield a valid request for every route."""
    for kind in (_native, _bulk, _dialects, _inference, _reads):
        yield from kind()


def _json(path: str, value: Any, **more: Any) -> Message:
    headers = ((b"content-type", JSON),)
    return Message("POST", path, headers, (json.dumps(value).encode(),), "json", **more)


def _native() -> Iterator[Message]:
    rows = {"texts": [TEXT, "", DNA], "special": ["match", "plain", "refuse"]}
    yield _json("/v1/encode", {"vocabulary": "gpn", "text": TEXT, "return_offsets": "utf16"})
    yield _json("/v1/encode", {"vocabulary": "gpt2", "text": TEXT, "max_length": 5})
    yield _json("/v1/encode/batch", {"vocabulary": "gpt2", **rows, "padding": "longest"})
    yield _json("/v1/encode/batch", {"vocabulary": "mtdna6", **rows, "circular": [True] * 3})
    yield _json(
        "/v1/encode/batch",
        {"vocabulary": "hyenadna", "texts": [DNA] * 2, "max_length": [None, 4], "padding": 9}
        | {"return_tokens": True, "return_offsets": "bytes", "reverse_complement": [True, False]}
        | {"truncation_side": "left", "pad_id": 4, "padding_side": "left", "dtype": "uint16"},
    )
    yield _json("/v1/count", {"vocabulary": "gpt2", "texts": [TEXT, DNA]}, encoding="gzip")
    yield _json(
        "/v1/decode", {"vocabulary": "gpt2", "ids": [15496, 11, 995, 220], "as_base64": True}
    )
    yield _json("/v1/decode/batch", {"vocabulary": "mtdna6", "ids": [[6, 7, 8], [], [4097, 0]]})
    windows = {"vocabulary": "mtdna6", "sequence": DNA, "window": 8, "stride": 4, "circular": True}
    windows["junction"] = "prepend"
    yield _json("/v1/windows", {**windows, "channel": [0.5] * len(DNA), "add_cls": False})
    chunks = {"vocabulary": "gpt2", "text": "One two three four", "chunk_size": 3}
    yield _json("/v1/chunks", {**chunks, "chunk_overlap": 1, "return_texts": True})
    yield _json("/v1/vocabularies/gpn/verify", {"texts": [DNA]})
    yield _json("/v1/vocabularies/gpn/verify", {"samples": 3})
    yield _json("/v1/vocabularies/gpn/load", {})
    yield _json("/v1/vocabularies/gpn/unload", {})


def _bulk() -> Iterator[Message]:
    octets = ((b"content-type", OCTETS), (b"accept", OCTETS))
    plain = ((b"content-type", b"text/plain; charset=utf-8"),)
    text = (TEXT.encode() * 3,)
    for encoding in ENCODERS:
        path = "/v1/encode?vocabulary=evo_bytes&dtype=uint8&add_special_tokens=false"
        yield Message("POST", path, octets, text, "bytes", encoding)
    yield Message("POST", "/v1/encode?vocabulary=gpt2&special=plain", octets, text)
    yield Message("POST", "/v1/encode?vocabulary=gpt2&return_offsets=bytes", plain, text)
    path = "/v1/encode?vocabulary=hyenadna&max_length=7&reverse_complement=true&dtype=uint8"
    yield Message("POST", path, octets, (DNA.encode(),))
    header = ((b"content-type", ARROW),)
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        body = (_arrow([DNA, None, "", TEXT], kind),)
        yield Message("POST", "/v1/encode/batch?vocabulary=gpn", header, body, "arrow")
    yield Message("POST", "/v1/encode/batch?vocabulary=gpt2", header, body, "arrow", "zstd")
    fasta = (f">{CANARY} 1\n{DNA}\n{DNA}\n>b\n\n;c\n>c\r\nACGT\r\n".encode(),)
    fastq = (f"@{CANARY}\nACGT\n+\nIIII\n@b\nGG\n+b\nII\n".encode(),)
    for path in (
        "/v1/encode/fasta?vocabulary=gpn&dtype=uint8",
        "/v1/encode/fasta?vocabulary=mtdna6&window=4&stride=2&circular=true",
        "/v1/encode/fasta?vocabulary=mtdna6&window=4&add_cls=true&padding=window"
        "&return_positions=true&circular=true&junction=prepend",
    ):
        yield Message("POST", path, (), fasta, "lines")
        yield Message("POST", path, (), fastq, "lines", "gzip")


def _arrow(texts: list[str | None], kind: pa.DataType) -> bytes:
    sink = io.BytesIO()
    columns = [pa.array(texts, kind), pa.array(range(len(texts)))]
    batch = pa.record_batch(columns, names=["text", "other"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch.slice(1, 2))
    return sink.getvalue()


def _dialects() -> Iterator[Message]:
    chat = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": [TEXT, _part()]}]
    tools = [{"type": "function", "function": {"name": CANARY}}]
    yield _json("/tokenize", {"prompt": TEXT, "return_token_strs": True})
    yield _json("/v1/tokenize", {"prompt": [TEXT, ""], "model": "gpn", "add_special_tokens": False})
    yield _json("/tokenize", {"content": TEXT, "with_pieces": True})
    yield _json("/tokenize", {"inputs": [TEXT, DNA]})
    yield _json("/tokenize", {"model": "chat", "messages": chat, "tools": tools})
    yield _json("/tokenize/count", {"prompt": [TEXT, ""], "model": "gpn"})
    yield _json("/apply-template", {"model": "chat", "messages": chat, "tools": tools})
    for path in ("/detokenize", "/v1/detokenize"):
        yield _json(path, {"tokens": [15496, 995], "skip_special_tokens": True})
    yield _json("/decode", {"ids": [[15496], [11, 995]]})
    options = {"return_token_offsets": True, "stream": True, "stream_options": {"a": 1}}
    yield _json("/v1/completions/render", {"prompt": [TEXT, DNA], **options})
    yield _json("/v1/completions/render", {"prompt": [[1, 2], [3]], "priority": 3})
    body = {"model": "chat", "messages": chat, "continue_final_message": True, **options}
    yield _json("/v1/chat/completions/render", {**body, "add_generation_prompt": False})
    sampling = {"temperature": 0.5, "stop": [CANARY], "logit_bias": {"5": 1}, "n": 2}
    sampling |= {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}}
    yield _json("/v1/completions/render", {"prompt": TEXT, "logprobs": 2, **sampling})
    candidate = {"token_id": 11, "logprob": -1.5, "rank": 1}
    logprobs = {"content": [{**candidate, "top_logprobs": [candidate]}]}
    choice = {"index": 0, "token_ids": [15496, 11], "finish_reason": "stop", "logprobs": logprobs}
    answer = {"request_id": CANARY, "choices": [choice], "prompt_token_ids": [995]}
    derender = "/v1/chat/completions/derender"
    yield _json(derender, {"generate_response": answer, "prompt_tokens": 3})
    yield _json("/v1/completions/derender", {"generate_responses": [answer, answer]})
    state = {"prev_token_ids": [995, 447], "read_offset": 1, "role_sent": True}
    part = {"stream": True, "generate_chunk": answer, "stream_state": state}
    yield _json(derender, part)
    yield _json("/v1/completions/derender", part)
    count = {"model": "chat", "messages": chat, "system": TEXT, "tools": tools}
    yield _json("/v1/messages/count_tokens", {**count, "chat_template_kwargs": {"a": [1]}})
    yield _json("/v1/responses/input_tokens", {"model": "chat", "input": chat, "instructions": "x"})
    yield _json("/v1/responses/input_tokens", {"input": TEXT})


def _part() -> dict[str, str]:
    return {"type": "text", "text": DNA}


def _tensor(name: str, datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


def _inference() -> Iterator[Message]:
    texts = [TEXT, "", DNA]
    tensor = _tensor("text", "BYTES", [3], data=texts)
    outputs = [{"name": name} for name in ("input_ids", "attention_mask", "num_tokens", "errors")]
    padded = {"padding": "longest", "padding_side": "left", "timeout": 900_000}
    yield _json("/v2/models/gpt2/infer", {"id": CANARY, "inputs": [tensor]})
    yield _json(
        "/v2/models/gpt2/infer", {"inputs": [tensor], "parameters": padded, "outputs": outputs}
    )
    ids = _tensor("input_ids", "INT64", [2, 2], data=[[15496, 11], [995, 220]])
    yield _json("/v2/models/gpt2.decode/versions/1/infer", {"inputs": [ids]})
    raw = make_bytes_tensor("text", Batch(texts)).data.tobytes()
    sized = _tensor("text", "BYTES", [3], parameters={"binary_data_size": len(raw)})
    yield _tensors("gpn", {"inputs": [sized], "parameters": {"binary_data_output": True}}, raw)
    offsets = np.array([0, 4, len(DNA)]).tobytes()
    two = [
        _tensor("text", "UINT8", [len(DNA)], parameters={"binary_data_size": len(DNA)}),
        _tensor("offsets", "INT64", [3], parameters={"binary_data_size": len(offsets)}),
    ]
    yield _tensors("mtdna6", {"inputs": two}, DNA.encode() + offsets)
    yield _tensors("gpn", None, DNA.encode())
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
    yield _json(
        "/v2/models/gpn/infer", {"inputs": [_tensor("text", "UINT8", [4], parameters=region)]}
    )
    yield _json("/v2/repository/index", {"ready": True})
    yield _json("/v2/repository/models/gpn.decode/load", {})
    yield _json("/v2/repository/models/gpn/unload", {"parameters": {"unload_dependents": False}})
    key = {"key": f"/{CANARY}", "offset": 0, "byte_size": 64}
    yield _json("/v2/systemsharedmemory/region/r/register", key)
    for kind in ("system", "cuda"):
        yield _json(f"/v2/{kind}sharedmemory/region/r/unregister", {})
        yield _json(f"/v2/{kind}sharedmemory/unregister", {})
    yield _json("/v2/cudasharedmemory/region/r/register", {"raw_handle": {"b64": "AA=="}})


def _tensors(model: str, head: Any, binary: bytes) -> Message:
    text = b"" if head is None else json.dumps(head).encode()
    headers = ((b"inference-header-content-length", b"%d" % len(text)),)
    path = f"/v2/models/{model}/infer"
    return Message("POST", path, headers, (text + binary,), "tensors")


def _reads() -> Iterator[Message]:
    for format in ("tokenizer.json", "tiktoken", "vocab.json", "vocab.txt", "kmer", "canonical"):
        for name in ("mine", "gpn", "dnabert1_3mer"):
            yield Message("GET", f"/v1/vocabularies/{name}?format={format}")
    for path in (
        "/v1/vocabularies",
        "/v1/models",
        "/v1/models/gpn",
        "/v1/info",
        "/info",
        "/version",
        "/tokenizer_info?model=chat",
        "/metrics",
        "/readyz",
        "/livez",
        "/health",
        "/ping",
        "/v2",
        "/v2/models/gpn",
        "/v2/models/gpn.decode/config",
        "/v2/models/stats",
        "/v2/models/gpn/versions/1/stats",
        "/v2/models/gpn/ready",
        "/v2/health/ready",
        "/v2/systemsharedmemory/region/r/status",
        "/v2/cudasharedmemory/status",
        "/",
    ):
        yield Message("GET", path, ((b"accept", b"application/openmetrics-text"),))
    yield Message("DELETE", "/v1/vocabularies/mine")
    yield Message("DELETE", "/v1/aliases/a/b")
