"""A batch of 64 texts enters few files on its way from the socket to the kernels and back."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path

import pytest

from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import open_engine
from tests.service.http.connection.test_protocol import listening, request
from tests.support.emulation.device import EmulatedDevice
from vocabularies.builtin import load

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gpu", "service", "vocabularies")
MAX_FILES = 15  # Metrics and logs aside.
WARMUPS = 3
BODY = json.dumps(
    {"vocabulary": "gpt2", "texts": [f"The first text is number {n}." for n in range(64)]}
)


class Files:
    """The files of the packages whose functions are called while it is armed."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.is_armed = False

    def note(self, frame, event, _):
        if (
            not self.is_armed or event != "call"
        ):  # Asked first: this runs for each call of the start.
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(ROOT):
            return
        path = path.relative_to(ROOT)
        called_by_tests = Path(frame.f_back.f_code.co_filename).is_relative_to(ROOT / "tests")
        if path.parts[0] in PACKAGES and not called_by_tests:
            self.seen.add(str(path))


async def exchange(port: int, files: Files) -> dict:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(WARMUPS + 1):
        files.is_armed = number == WARMUPS
        writer.write(request(BODY.encode(), "/v1/encode/batch"))
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = await reader.readexactly(size)
    files.is_armed = False
    writer.close()
    return json.loads(body)


@pytest.mark.slow
def test_a_batch_enters_few_files():
    engine = HybridEngine(CpuEngine(), lambda: open_engine(EmulatedDevice(), 0, 0.5), 0)
    engine.settle()
    engine.load(load("gpt2"), True)
    engine.gate = threading.Event()  # What `listening` opens at its end.
    files = Files()

    async def main() -> dict:
        async with listening(engine, preload="gpt2") as (_, port):
            return await exchange(port, files)

    threading.setprofile(files.note)
    sys.setprofile(files.note)
    try:
        answer = asyncio.run(main())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        engine.close()
    assert answer["engine"] == "gpu" and len(answer["ids"]) == 64
    walked = {file for file in files.seen if not file.startswith("service/observability/")}
    assert {"service/http/connection/protocol.py", "gpu/small/fused.py"} <= walked
    assert len(walked) <= MAX_FILES, "\n".join(sorted(walked))
