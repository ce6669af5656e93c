"""A GPU in the process whose CUDA context is lost: it is recognized, said once, and not tried."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import service.engines.hybrid.device_loss as device_loss
from gpu.errors import LaunchFailed, OutOfMemory, find_lost_context
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.multiprocess.front_end import FrontEnd
from service.server.startup import DEVICE_LOST
from tests.support.app_client import serving
from tests.support.data_files import ROOT
from tests.support.fake_engine import byte_vocabulary
from tests.support.gpus.losing_gpu import DEADLY, CudaError, LosingGpu
from tests.support.linked_processes import client_of
from tests.support.server_process import SAID, service_environment
from tests.support.waiting import run, until, wait_until
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

CPU = CpuEngine()
BYTES = byte_vocabulary()
LARGE = ["many letters " * 9] * 40
FATAL = [*LARGE, DEADLY.decode()]


@pytest.mark.parametrize("number", [214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719])
def test_errors_after_which_cuda_refuses_everything_are_recognized(number):
    assert f"CUDA error {number}" in find_lost_context(LaunchFailed(f"CUDA error {number}"))
    error = CudaError("an error of CuPy")
    error.status = number
    memory = OutOfMemory("64 bytes")
    memory.__cause__ = error
    assert f"CUDA error {number}" in find_lost_context(memory)


@pytest.mark.parametrize("error", [None, LaunchFailed("no number"), LaunchFailed("CUDA error 2")])
def test_other_errors_are_not(error):
    assert find_lost_context(error) == ""
    assert find_lost_context(RuntimeError("CUDA error 700")) == ""


def made(is_of_use: bool) -> tuple[HybridEngine, LosingGpu, list[bool]]:
    """Make an engine whose GPU can be lost, and a list of calls of `on_lost`."""
    gpu, ends = LosingGpu(CPU), list[bool]()
    engine = HybridEngine(CPU, gpu.opened, 1000)
    engine.fallbacks.loss.on_lost = lambda: ends.append(True)
    engine.settle()
    engine.load(BYTES)
    if is_of_use:
        engine.fallbacks.loss._opened_at -= device_loss.MIN_USE_S
    return engine, gpu, ends


def check(engine: HybridEngine, texts: list[str], by: str) -> None:
    encoded = engine.encode(BYTES, Batch(texts))
    assert encoded.ids.tolist() == CPU.encode(BYTES, Batch(texts)).ids.tolist()
    assert encoded.engine == by


def test_a_lost_gpu_is_said_once_and_not_tried_again(caplog):
    engine, gpu, ends = made(is_of_use=True)
    check(engine, LARGE, by="gpu")
    check(engine, FATAL, by="cpu")
    for _ in range(5):
        check(engine, LARGE, by="cpu")
    assert gpu.num_lost_calls == 1 and ends == [True]
    said = [line for line in caplog.messages if "lost to this process" in line]
    assert said == [
        "the GPU is lost to this process by an illegal address (CUDA error 700); the CPU answers"
    ]
    status = engine.status()
    assert [device["state"] for device in status.devices] == ["lost"]
    assert status.up == {"fake": False} and status.memory == {}
    assert status.fallbacks == {"device_error": 1, "lost": 5}
    assert "is lost" in engine.residency(BYTES.digest).fallback_reason
    other = byte_vocabulary(257)
    assert engine.load(other).engine == "cpu"
    engine.unload(other.digest)
    assert engine.open_shared(bytes(64), 64) is None
    assert engine.share_host(0, 0, 64) is None
    assert len(engine.host_memory(5000)) == 5000
    assert gpu.num_lost_calls == 1
    engine.close()


def test_a_gpu_that_is_lost_at_once_does_not_end_the_process(caplog):
    engine, _, ends = made(is_of_use=False)
    check(engine, FATAL, by="cpu")
    assert ends == [] and "the process does not end for it" in caplog.text
    assert [device["state"] for device in engine.status().devices] == ["lost"]


def test_memory_that_cuda_refuses_because_the_context_is_lost_is_no_lack_of_memory(monkeypatch):
    engine, gpu, ends = made(is_of_use=True)

    def refuse(vocabulary, batch):
        raise OutOfMemory("64 bytes") from CudaError("cudaErrorIllegalAddress")

    monkeypatch.setattr(gpu, "encode", refuse)
    check(engine, LARGE, by="cpu")
    assert ends == [True]
    assert engine.status().fallbacks == {"device_error": 1}


def test_info_and_metrics_say_that_it_is_lost():
    engine, _, _ = made(is_of_use=False)

    async def scenario() -> None:
        async with serving(engine, preload="evo_bytes") as (client, state):
            await until(lambda: state.preloaded)
            body = {"vocabulary": "evo_bytes", "texts": FATAL}
            for _ in range(2):
                answer = (await client.post("/v1/encode/batch", json=body)).json()
                assert answer["engine"] == "cpu"
            (device,) = (await client.get("/v1/info")).json()["devices"]
            assert device["state"] == "lost"
            metrics = (await client.get("/metrics")).text
            assert 'warptok_device_up{device="fake"} 0.0' in metrics
            assert 'warptok_fallbacks_total{reason="lost"} 1.0' in metrics
            assert (await client.get("/readyz")).status_code == 200

    run(scenario)


# Processes that end for it.

SETTINGS = {
    "WARPTOK_ENGINE": "gpu",
    "WARPTOK_GRPC": "false",
    "WARPTOK_PRELOAD": "evo_bytes",
    "WARPTOK_CROSSOVER_BYTES": "1000",
    "WARPTOK_HOST": "127.0.0.1",
    "WARPTOK_PORT": "0",
}


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a program of tests/support/gpus/losing_gpu.py; yield its process and its log."""
    log = folder / "log"
    with (
        open(log, "wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.gpus.losing_gpu", *arguments],
            cwd=ROOT,
            env=service_environment(SETTINGS),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process, log
        finally:
            process.kill()


@pytest.mark.slow
def test_a_single_process_drains_and_ends_with_its_own_code(tmp_path):
    with started(tmp_path, "single") as (process, log):
        wait_until(lambda: SAID.search(log.read_text()) or process.poll() is not None)
        said = SAID.search(log.read_text())
        assert said is not None, log.read_text()
        with httpx.Client(base_url=said[1], timeout=60) as client:

            def is_ready() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return client.get("/readyz").status_code == 200
                return False

            wait_until(is_ready)
            body = {"vocabulary": "evo_bytes", "texts": LARGE}
            assert client.post("/v1/encode/batch", json=body).json()["engine"] == "gpu"
            body = {"vocabulary": "evo_bytes", "texts": FATAL}
            answer = client.post("/v1/encode/batch", json=body).json()
            right = CPU.encode(load("evo_bytes"), Batch(FATAL)).ids.tolist()
            assert [each for row in answer["ids"] for each in row] == right
            assert answer["engine"] == "cpu"
        assert process.wait(60) == DEVICE_LOST, log.read_text()
    assert "the GPU is lost to this process by an illegal address" in log.read_text()
    assert "2 accepted; 2 answered" in log.read_text() and "Traceback" not in log.read_text()


@pytest.mark.slow
def test_the_engine_process_behind_front_ends_answers_what_it_has_and_ends(tmp_path):
    path = tmp_path / "engine.sock"

    async def scenario(process: subprocess.Popen[bytes], log: Path) -> None:
        settings = Settings(preload="evo_bytes", frontends=1, inline_batch_bytes=0, grpc=False)
        front = FrontEnd(settings, path, "front-0")
        async with front._running():
            await until(lambda: front.service.preloaded or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            async with client_of(front) as client:
                body = {"vocabulary": "evo_bytes", "texts": FATAL}
                answer = await client.post("/v1/encode/batch", json=body)
                assert answer.json()["engine"] == "cpu", log.read_text()
                right = CPU.encode(load("evo_bytes"), Batch(FATAL)).ids.tolist()
                assert [each for row in answer.json()["ids"] for each in row] == right
                await until(lambda: process.poll() is not None)
                refused = await client.post("/v1/encode/batch", json=body)
                assert refused.status_code == 503

    with started(tmp_path, "engine", str(path)) as (process, log):
        run(lambda: scenario(process, log))
        assert process.wait(60) == DEVICE_LOST, log.read_text()
    assert "another one can use the GPU" in log.read_text()
