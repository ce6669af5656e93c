"""Fast clients of the bulk APIs, which make requests and parse answers outside of the timed span.

Blocking sockets in two threads, which release the interpreter lock, so that on two cores the
server and not the client is measured.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import grpc
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from service.apis.grpc.large_fields import cut_field, with_field
from service.protos import warptok_pb2 as pb

Bytes = NDArray[np.uint8]
Answer = NDArray[np.uint8]
OCTETS = "application/octet-stream"
CHUNK_END = b"\r\n"


def exchange(port: int, sent: Sequence[Any], buffer: Bytes) -> Answer:
    """Send and receive at once until the other side closes; return a view of `buffer`."""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> None:
            for data in sent:
                connection.sendall(data)

        sending = threading.Thread(target=send)
        sending.start()
        view, size = buffer.data, 0
        while received := connection.recv_into(view[size:]):
            size += received
        sending.join()
    return buffer[:size]


def http_head(path: str, query: dict[str, Any], num_bytes: int, **headers: str) -> bytes:
    """Make the head of a POST with `Connection: close`."""
    fields = {"host": "localhost", "connection": "close", "content-length": str(num_bytes)}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    target = f"{path}?{urlencode(query)}" if query else path
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def http_payload(answer: Answer) -> bytes:
    """Return the body of an answer, its chunks joined.

    Raises:
        SystemExit: its status is not 200.
    """
    data = answer.tobytes()
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"refused: {head.decode()} {body[:500].decode(errors='replace')}")
    return b"".join(_chunks(body)) if b"transfer-encoding: chunked" in head.lower() else body


def _chunks(body: bytes) -> Iterator[memoryview]:
    view, place = memoryview(body), 0
    while True:
        line_end = body.index(CHUNK_END, place)
        size = int(body[place:line_end], 16)
        if not size:
            return
        place = line_end + len(CHUNK_END)
        yield view[place : place + size]
        place += size + len(CHUNK_END)


def arrow_body(rows: Sequence[Bytes], rows_of_batch: int) -> bytes:
    """Make an Arrow stream with the column `text`."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("text", pa.binary())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for begin in range(0, len(rows), rows_of_batch):
            part = rows[begin : begin + rows_of_batch]
            offsets = np.cumsum([0, *map(len, part)]).astype(np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.concatenate(part))]
            column = pa.Array.from_buffers(pa.binary(), len(part), buffers)
            writer.write_batch(pa.RecordBatch.from_arrays([column], schema=schema))
    return bytes(sink.getvalue())


def arrow_ids(body: bytes, column: str) -> NDArray[Any]:
    """Return all ids of an Arrow stream, the rows joined."""
    table = pa.ipc.open_stream(body).read_all()
    ids: NDArray[Any] = table.column(column).combine_chunks().flatten().to_numpy()
    return ids


def fasta_body(rows: Sequence[Bytes], width: int) -> bytes:
    """Make FASTA with lines of `width` bases."""
    lines: list[bytes] = []
    for number, row in enumerate(rows):
        text = row.tobytes()
        lines.append(b">row%d" % number)
        lines += [text[begin : begin + width] for begin in range(0, len(text), width)]
    return b"\n".join([*lines, b""])


def grpc_messages(rows: Sequence[Bytes], rows_of_message: int, **request: Any) -> list[bytes]:
    """Serialize EncodeBatchRequests of `rows_of_message` rows each."""
    messages = []
    for begin in range(0, len(rows), rows_of_message):
        part = rows[begin : begin + rows_of_message]
        offsets = np.cumsum([0, *map(len, part)]).astype(np.int64)
        fields = pb.EncodeBatchRequest(offsets=offsets.tobytes(), **request).SerializeToString()
        data = np.concatenate(part)
        messages.append(with_field(pb.EncodeBatchRequest.DATA_FIELD_NUMBER, data.data, fields))
    return messages


def grpc_stream(port: int, method: str) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Return a function that sends messages over one bidirectional stream and returns answers."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
    call = channel.stream_stream(method)

    def run(messages: Sequence[bytes]) -> list[bytes]:
        return list(call(iter(messages)))

    return run


def grpc_ids(answers: Sequence[bytes], dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Return the ids of EncodeBatchResponses, joined."""
    number = pb.EncodeBatchResponse.IDS_FIELD_NUMBER
    return np.concatenate([np.frombuffer(cut_field(one, number)[0], dtype) for one in answers])
