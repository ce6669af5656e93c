"""The bulk APIs, side by side: octet-stream, Arrow, FASTA, gRPC streams and JSON.

    python -m benchmarks.service.bulk_apis                     # about two minutes, loopback only
    python -m benchmarks.service.bulk_apis --megabytes 8 --rounds 1 --out FILE

One service with the CPU engine on one core, or on `--cores`, one client on as many others. Through
each API go the same bases, and their ids must be the same before anything is timed: those of the
reference for a part, those of the engine for all. Beside them, echo servers show the
cost of moving the bytes: the same number of bytes there and back over a TCP connection and over a
gRPC stream. The APIs take turns. GB are 10**9 bytes of text; ids are as wide as the row says.

`cpu_s_per_gb` is the CPU time of the server's process; a busy machine changes it less than rates.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.service.bulk_apis import clients
from benchmarks.service.bulk_apis.servers import PLAIN, VOCABULARY, Servers, start
from benchmarks.service.http import cpu_seconds
from benchmarks.support.machine import machine
from benchmarks.support.timing import Run, clocked, per_second, summary, take_turns
from service.apis.bulk.arrow_reader import MEDIA_TYPE
from service.engines.cpu.engine import CpuEngine
from service.protos import warptok_pb2 as pb
from vocabularies import builtin
from vocabularies.batch.batch import Batch
from vocabularies.reference import tokenizer

Rows = list[NDArray[np.uint8]]
DTYPES: dict[str, type[np.integer[Any]]] = {"uint8": np.uint8, "int32": np.int32}
PACKAGES = ("uvicorn", "uvloop", "httptools", "grpcio", "pyarrow", "dnaio", "numpy")
ROW_BYTES = 1 << 16
MESSAGE_ROWS = 64  # 4 MiB a message.
PROVED_BYTES = 1 << 20  # Compared with the reference, which is slow.
JSON_BYTES = 1 << 20
LINE_BASES = 80
PATHS = {"octet-stream": "/v1/encode", "Arrow": "/v1/encode/batch", "FASTA": "/v1/encode/fasta"}
ENCODE_STREAM = "/warptok.v1.Tokenizer/EncodeStream"


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    Attributes:
        run: sends everything and returns the answer.
        ids: the ids in the answer; None: the same bytes come back.
        num_bytes: the bytes of text.
        pid: the process id of the server.
    """

    run: Callable[[], Any]
    ids: Callable[[Any], NDArray[Any]] | None
    num_bytes: int
    pid: int


def make_rows(num_bytes: int) -> list[NDArray[np.uint8]]:
    """Make rows of random bases, some N or soft masked, the same on every machine."""
    generator = np.random.default_rng(4)
    letters = np.frombuffer(b"ACGT" * 15 + b"Nacg", np.uint8)
    data = letters[generator.integers(0, len(letters), num_bytes, np.uint8)]
    return [data[begin : begin + ROW_BYTES] for begin in range(0, num_bytes, ROW_BYTES)]


def http_api(port: int, pid: int, rows: Rows, path: str, query: dict[str, Any]) -> Api:
    """Make an HTTP request to a path with a body in its format."""
    dtype = DTYPES[query.get("dtype", "int32")]
    parameters = {"vocabulary": VOCABULARY, "add_special_tokens": "false", **query}
    headers = {"content_type": clients.OCTETS, "accept": clients.OCTETS}

    def octets(answer: clients.Answer) -> NDArray[Any]:
        return np.frombuffer(clients.http_payload(answer), dtype)

    def arrow(answer: clients.Answer) -> NDArray[Any]:
        return clients.arrow_ids(clients.http_payload(answer), "ids")

    def json_ids(answer: clients.Answer) -> NDArray[Any]:
        return np.array(orjson.loads(clients.http_payload(answer))["ids"], np.int32)

    body, ids = rows_data(rows).tobytes(), octets
    match path:
        case "/v1/encode/batch":
            body, ids = clients.arrow_body(rows, MESSAGE_ROWS), arrow
            headers = {"content_type": MEDIA_TYPE}
        case "/v1/encode/fasta":
            body, ids = clients.fasta_body(rows, LINE_BASES), arrow
        case "/v1/encode" if query.get("dtype") is None:
            call = {"vocabulary": VOCABULARY, "text": body.decode(), "add_special_tokens": False}
            body, ids, parameters = orjson.dumps(call), json_ids, {}
            headers = {"content_type": "application/json"}
    head = clients.http_head(path, parameters, len(body), **headers)
    num_bytes = sum(map(len, rows))
    # A JSON id takes up to three bytes here, and lists have offsets.
    buffer = np.zeros(8 * num_bytes + (1 << 20), np.uint8)
    return Api(partial(clients.exchange, port, (head, body), buffer), ids, num_bytes, pid)


def rows_data(rows: Rows) -> NDArray[np.uint8]:
    """Join the rows."""
    return np.concatenate(rows)


def apis(ports: Servers, rows: Rows) -> Iterator[tuple[str, Api]]:
    """Yield every API, and the echoes that it is compared with, by name."""
    data, num_bytes = rows_data(rows), sum(map(len, rows))
    port, pid = ports["echo"]
    buffer, sent = np.zeros(num_bytes, np.uint8), (num_bytes.to_bytes(8, "little"), data.data)
    yield "TCP alone", Api(partial(clients.exchange, port, sent, buffer), None, num_bytes, pid)
    http_port, pid = ports["http"]
    for dtype in DTYPES:
        for name, path in PATHS.items():
            yield f"{name} {dtype}", http_api(http_port, pid, rows, path, {"dtype": dtype})
    port, echo_pid = ports["echo_grpc"]
    echo = clients.grpc_stream(port, "/echo/Stream")
    for dtype, width in DTYPES.items():
        options = pb.Options(add_special_tokens=False, dtype=dtype)
        common = {"vocabulary": VOCABULARY, "options": options}
        messages = clients.grpc_messages(rows, MESSAGE_ROWS, **common)
        if dtype == "uint8":
            yield "gRPC alone", Api(partial(echo, messages), None, num_bytes, echo_pid)
        call = clients.grpc_stream(ports["grpc"][0], ENCODE_STREAM)
        ids = partial(clients.grpc_ids, dtype=width)
        yield f"gRPC {dtype}", Api(partial(call, messages), ids, num_bytes, pid)
    json_rows = [rows_data(rows)[:JSON_BYTES]]
    for name in {"http", "plain"} & ports.keys():
        port, pid = ports[name]
        yield f"JSON {name}", http_api(port, pid, json_rows, "/v1/encode", {})


def prove(found: dict[str, Api], rows: Rows) -> str:
    """Compare the ids of every API; SHA-256 of the ids as int32.

    Raises:
        SystemExit: an API returns other ids.
    """
    vocabulary, data = builtin.load(VOCABULARY), rows_data(rows)
    batch = Batch(data=data, offsets=np.array([0, len(data)]), options=PLAIN)
    expected = CpuEngine().encode(vocabulary, batch).ids.astype(np.int32)
    front = data[:PROVED_BYTES].tobytes().decode()
    if tokenizer.encode(vocabulary, front, PLAIN).ids != expected[: len(front)].tolist():
        raise SystemExit("the engine differs from the reference")
    for name, api in found.items():
        answer = api.run()
        if api.ids is not None and not np.array_equal(api.ids(answer), expected[: api.num_bytes]):
            raise SystemExit(f"{name} gives other ids")
        print(f"{name}: ids equal", flush=True)
    return hashlib.sha256(expected.tobytes()).hexdigest()


def measure(found: dict[str, Api], rounds: int) -> list[dict[str, Any]]:
    """Time the APIs in turns."""
    used = dict.fromkeys(found, 0.0)

    def timed(name: str, api: Api) -> Run:
        def run() -> float:
            before = cpu_seconds(api.pid)
            seconds = clocked(api.run)()
            used[name] += cpu_seconds(api.pid) - before
            return seconds

        return run

    samples = take_turns({name: timed(name, api) for name, api in found.items()}, rounds)
    rows = []
    for name, api in found.items():
        gigabytes = api.num_bytes * (rounds + 1) / 1e9
        row = {"api": name, "bytes": api.num_bytes, "cpu_s_per_gb": used[name] / gigabytes}
        rows.append(row | {"gb_per_s": per_second(api.num_bytes, samples[name])})
        rows[-1]["seconds"] = summary(samples[name])
        print(f"{name:20} {rows[-1]['gb_per_s']:7.3f} GB/s {row['cpu_s_per_gb']:6.2f} s CPU/GB")
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=63, help="MiB of text through each API")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1, help="of the server; the client's as many")
    parser.add_argument("--only", nargs="+", help="APIs whose names begin so")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[2] / "results/service/bulk_apis.json"
    )
    args = parser.parse_args()
    with_plain = not args.only or any("JSON plain".startswith(name) for name in args.only)
    about, rows = machine(PACKAGES), make_rows(args.megabytes << 20)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = dict(apis(start(stack, folder, with_plain, args.cores), rows))
        if args.only:
            found = {n: api for n, api in found.items() if n.startswith(tuple(args.only))}
        digest = prove(found, rows)
        measured = measure(found, args.rounds)
    command = "python -m benchmarks.service.bulk_apis " + " ".join(sys.argv[1:])
    document: dict[str, Any] = {"command": command.strip(), "machine": about}
    document |= {"vocabulary": VOCABULARY, "ids_sha256": digest, "apis": measured}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
