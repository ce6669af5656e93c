"""Sends FASTA of any length, made while it is sent, through POST /v1/encode/fasta.

    python -m benchmarks.service.long_fasta --gigabytes 10                          # whole records
    python -m benchmarks.service.long_fasta --gigabytes 10 --window 512 --vocabulary mtdna6

One service process with the CPU engine. Records are of 2.5 million random bases in lines of 80, or
with `--one-record` all of it is one, which only windows allow. The most memory of the service is
read from /proc (VmHWM). Ids are proved equal for a part: the front of the answer beside the CPU
engine's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa

from benchmarks.service.http import cpu_seconds, free_port, server
from benchmarks.support.machine import machine
from service.engines.cpu.engine import CpuEngine
from vocabularies import builtin
from vocabularies.batch.batch import Batch, EncodeOptions

RECORD_BASES = 2_500_000
LINE_BASES = 80
PIECE_LINES = 1 << 13
KEPT_BYTES = 32 << 20  # Of an answer's front.
RECEIVED_BYTES = 1 << 20
PROVED_BASES = 6_000_000
END_IDS = 16  # What the end of the proved bases may change.


@dataclass(frozen=True, slots=True)
class Streamed:
    """The facts of an answer whose body was not kept.

    Attributes:
        front: its first bytes, chunks joined.
        ends_well: the last chunk came.
    """

    status: int
    num_bytes: int
    front: bytes
    ends_well: bool


def genome(num_bases: int, record_bases: int = RECORD_BASES) -> Iterator[bytes]:
    """Yield lines of random bases, the same on every machine, and headers between records."""
    generator = np.random.default_rng(7)
    letters = np.frombuffer(b"ACGT" * 15 + b"Nacg", np.uint8)
    made = 0
    while made < num_bases:
        lines = min(PIECE_LINES, -(-(num_bases - made) // LINE_BASES))
        text = np.full((lines, LINE_BASES + 1), ord("\n"), np.uint8)
        drawn = generator.integers(0, len(letters), (lines, LINE_BASES), np.uint8)
        text[:, :LINE_BASES] = letters[drawn]
        before, made = made // record_bases, made + lines * LINE_BASES
        yield text.tobytes()
        if made // record_bases > before and made < num_bases:
            yield b">record%d\n" % (made // record_bases)


def send(port: int, query: dict[str, Any], pieces: Iterable[bytes]) -> Streamed:
    """Post pieces as a chunked body, and read the answer at the same time."""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        target = f"/v1/encode/fasta?{urlencode(query)}"
        head = f"POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        head += "transfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())

        def write() -> None:
            for piece in pieces:
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            connection.sendall(b"0\r\n\r\n")

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        front, tail, num_bytes = bytearray(), b"", 0
        while data := connection.recv(RECEIVED_BYTES):
            num_bytes += len(data)
            if len(front) < KEPT_BYTES:
                front += data
            tail = (tail + data)[-5:]
        writing.join()
    answer_head, _, body = bytes(front).partition(b"\r\n\r\n")
    return Streamed(int(answer_head.split()[1]), num_bytes, _joined(body), tail == b"0\r\n\r\n")


def _joined(body: bytes) -> bytes:
    """Join the whole chunks at the front of a chunked body."""
    found, place = [], 0
    while (line_end := body.find(b"\r\n", place)) >= 0:
        size = int(body[place:line_end], 16)
        found.append(body[line_end + 2 : line_end + 2 + size])
        place = line_end + size + 4
    return b"".join(found)


def prove(front: bytes, query: dict[str, Any], record_bases: int) -> int:
    """Compare the first record batch of an answer with the CPU engine's ids; return their number.

    Raises:
        SystemExit: one differs.
    """
    window = query.get("window")
    text = b"".join(take(genome(PROVED_BASES, record_bases), min(PROVED_BASES, record_bases)))
    data = np.frombuffer(text.replace(b"\n", b""), np.uint8)
    options = EncodeOptions(add_special_tokens=window is None)
    batch = Batch(data=data, offsets=np.array([0, len(data)]), options=options)
    expected = CpuEngine().encode(builtin.load(query["vocabulary"]), batch).ids
    column = pa.ipc.open_stream(front).read_next_batch().column("ids" if window is None else 2)
    ids = column.flatten().to_numpy()
    size = min(len(ids), len(expected) - END_IDS)
    if size <= 0 or not np.array_equal(ids[:size], expected[:size]):
        raise SystemExit("the answer's ids are others")
    return int(size)


def take(pieces: Iterable[bytes], num_bases: int) -> Iterator[bytes]:
    """Yield the lines of the first record, up to `num_bases`."""
    for piece in pieces:
        if piece.startswith(b">") or num_bases <= 0:
            return
        yield piece
        num_bases -= piece.count(b"\n") * LINE_BASES


def memory_mb(pid: int, field: str) -> int:
    """Read a field of /proc/PID/status in MB."""
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) * 1024 // 10**6 if found else 0


def watch(pid: int, samples: list[int], done: threading.Event) -> None:
    """Sample the resident memory every second."""
    while not done.wait(1.0):
        samples.append(memory_mb(pid, "VmRSS"))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Start the service, send, and measure time and memory."""
    num_bases = int(args.gigabytes * 1e9)
    record_bases = num_bases if args.one_record else RECORD_BASES
    query: dict[str, Any] = {"vocabulary": args.vocabulary, "dtype": args.dtype}
    if args.window:
        query |= {"window": args.window, "stride": args.window}
    cores, port = sorted(os.sched_getaffinity(0)), free_port()
    environment = {"WARPTOK_PRELOAD": args.vocabulary, "WARPTOK_GRPC": "false"}
    command = [sys.executable, "-m", "service", "serve", "--engine", "cpu", "--port", str(port)]
    with server(command, port, environment, cores[0]) as pid:
        os.sched_setaffinity(0, {cores[-1]})
        before, cpu_before, begin = memory_mb(pid, "VmRSS"), cpu_seconds(pid), time.perf_counter()
        samples: list[int] = []
        done = threading.Event()
        watching = threading.Thread(target=watch, args=(pid, samples, done))
        watching.start()
        answer = send(port, query, chain([b">record0\n"], genome(num_bases, record_bases)))
        seconds = time.perf_counter() - begin
        done.set()
        watching.join()
        if answer.status != 200 or not answer.ends_well:
            raise SystemExit(f"status {answer.status}, ended well: {answer.ends_well}")
        quarter = max(1, len(samples) // 4)
        return {
            "query": query,
            "bases": num_bases,
            "record_bases": record_bases,
            "seconds": seconds,
            "gb_per_s": num_bases / seconds / 1e9,
            "cpu_s_per_gb": (cpu_seconds(pid) - cpu_before) / num_bases * 1e9,
            "answer_bytes": answer.num_bytes,
            "ids_proved": prove(answer.front, query, record_bases),
            "rss_mb": {
                "before": before,
                "peak": memory_mb(pid, "VmHWM"),
                "first_quarter": max(samples[:quarter], default=0),
                "last_quarter": max(samples[-quarter:], default=0),
            },
        }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--vocabulary", default="hyenadna")
    parser.add_argument("--dtype", default="uint8")
    parser.add_argument("--window", type=int, help="ids; absent: whole records")
    parser.add_argument("--one-record", action="store_true")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results/service/fasta.json"
    )
    args = parser.parse_args()
    measured = run(args)
    print(json.dumps(measured, indent=1))
    command = "python -m benchmarks.service.long_fasta " + " ".join(sys.argv[1:])
    document = {"command": command.strip(), "machine": machine(("pyarrow", "uvicorn"))} | measured
    args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
