"""A client that shares memory regions with the service and encodes from one into another."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.texts import Bytes, Text

SHM = Path("/dev/shm")
OFFSETS = "offsets"
TIMEOUT_S = 600
PIECE = 1 << 16
HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Client:
    """One connection, a plain socket: http.client takes 0.3 to 0.5 ms of each call on regions.

    A new connection takes the place of one that the service has closed because it was idle.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._connect()

    def _connect(self) -> None:
        self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _is_closed(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0])  # It has ended: no call waits.

    def post(self, path: str, document: object) -> Any:
        """Post JSON and return the answer's JSON.

        Raises:
            SystemExit: it is a refusal.
        """
        body = json.dumps(document).encode()
        head = HEAD.format(path=path, size=len(body)).encode()
        if self._is_closed():
            self.connection.close()
            self._connect()
        self.connection.sendall(head + body)
        status, answer = self._answer()
        if status != HTTPStatus.OK:
            raise SystemExit(f"{path}: {status}: {answer[:500].decode()}")
        return json.loads(answer)

    def _answer(self) -> tuple[int, bytes]:
        """Read an answer, which has a content-length like all answers here: its status and body.

        Raises:
            ConnectionError: it ended before that.
        """
        data, end = b"", None
        while end is None or len(data) < end:
            piece = self.connection.recv(PIECE)
            if not piece:
                raise ConnectionError(f"the connection ended behind {len(data)} bytes of an answer")
            data += piece
            head, between, _ = data.partition(b"\r\n\r\n")
            if end is None and between:
                length = LENGTH.search(head)
                end = len(head) + len(between) + int(length[1] if length else 0)
        return int(data.split(b" ", 2)[1]), data[len(head) + len(between) :]

    def register(self, kind: str, name: str, size: int, place: dict[str, Any]) -> None:
        """Register a region with the service."""
        self.post(f"/v2/{kind}sharedmemory/region/{name}/register", place | {"byte_size": size})


@dataclass(frozen=True, slots=True)
class Pair:
    """Two registered regions of one kind.

    Attributes:
        kind: the part of their names that pairs differ in, such as "system" or "cuda".
        ids: returns uint8[...], the front of the memory for ids.
        clear: fills this memory with ones.
    """

    kind: str
    ids: Callable[[int], Bytes]
    clear: Callable[[], object]


@contextlib.contextmanager
def host_memory(client: Client, sizes: dict[str, int]) -> Iterator[dict[str, Bytes]]:
    """Register regions of host memory; yield their memory by name."""
    key = f"warptok-regions-{uuid.uuid4().hex}"
    paths = {name: SHM / f"{key}-{name}" for name in sizes}
    try:
        maps: dict[str, Bytes] = {
            name: np.memmap(paths[name], np.uint8, "w+", shape=sizes[name]) for name in sizes
        }
        for name, size in sizes.items():
            client.register("system", name, size, {"key": paths[name].name})
        yield maps
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def system_pair(client: Client, text: Bytes) -> Iterator[Pair]:
    """Register a pair of regions in host memory."""
    sizes = {"system-text": len(text), "system-ids": 4 * len(text)}
    with host_memory(client, sizes) as maps:
        maps["system-text"][:] = text
        ids = maps["system-ids"]
        yield Pair("system", lambda size: ids[:size], lambda: ids.fill(0xFF))


@contextlib.contextmanager
def cuda_pair(client: Client, text: Bytes, device: int = 0, kind: str = "cuda") -> Iterator[Pair]:
    """Register a pair of regions in the memory of a device; `kind` distinguishes several pairs."""
    import cupy

    runtime, current = cupy.cuda.runtime, cupy.cuda.Device(device)
    sizes = {"text": len(text), "ids": 4 * len(text)}
    with current:
        places = {name: runtime.malloc(size) for name, size in sizes.items()}

    def ids(size: int) -> Bytes:
        out = np.empty(size, np.uint8)
        with current:
            runtime.memcpy(out.ctypes.data, places["ids"], size, runtime.memcpyDeviceToHost)
        return out

    def clear() -> None:
        with current:
            runtime.memset(places["ids"], 0xFF, sizes["ids"])
            runtime.deviceSynchronize()

    def handle(name: str) -> dict[str, Any]:
        raw = b64encode(runtime.ipcGetMemHandle(places[name])).decode()
        return {"raw_handle": {"b64": raw}, "device_id": device}

    try:
        source = np.ascontiguousarray(text)
        with current:
            runtime.memcpy(
                places["text"], source.ctypes.data, len(text), runtime.memcpyHostToDevice
            )
            for name, size in sizes.items():
                client.register("cuda", f"{kind}-{name}", size, handle(name))
        yield Pair(kind, ids, clear)
    finally:
        client.post("/v2/cudasharedmemory/unregister", {})
        with current:
            for place in places.values():
                runtime.free(place)


def infer(client: Client, pair: Pair, vocabulary: str, rows: Text, dtype: str) -> int:
    """Encode a region into another one; return the bytes of ids."""
    size, count, kind = len(rows.data), len(rows.offsets), pair.kind
    text = {"name": "text", "datatype": "UINT8", "shape": [size]}
    begins = {"name": "offsets", "datatype": "INT64", "shape": [count]}
    inputs = [
        text | {"parameters": place(f"{kind}-text", size)},
        begins | {"parameters": place(OFFSETS, rows.offsets.nbytes)},
    ]
    outputs = [{"name": "input_ids", "parameters": place(f"{kind}-ids", 4 * size)}]
    body = {"inputs": inputs, "outputs": outputs, "parameters": {"dtype": dtype}}
    answer = client.post(f"/v2/models/{vocabulary}/infer", body)
    return int(answer["outputs"][0]["parameters"]["shared_memory_byte_size"])


def place(region: str, size: int) -> dict[str, Any]:
    """Make the tensor parameters that name the front of a region."""
    return {"shared_memory_region": region, "shared_memory_byte_size": size}
