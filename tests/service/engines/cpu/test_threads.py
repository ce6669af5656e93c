"""The setting `cpu_threads` and front ends bound the threads of our C++ and of the libraries."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from gpu.host import cores
from service.core.settings import Settings
from service.engines.cpu.bpe import library_threads
from service.engines.cpu.engine import CpuEngine
from service.multiprocess import engine_process, front_end
from service.multiprocess.engine_process import run_engine
from service.multiprocess.front_end import FrontEnd, run_front_end
from service.server import uvicorn_server
from service.server.app import make_engine
from vocabularies import builtin

Patch = pytest.MonkeyPatch
VARIABLES = (library_threads.TOKENIZERS,)


@pytest.fixture(autouse=True)
def environment(monkeypatch: Patch) -> None:
    """An environment of four cores, whose variables are given back."""
    monkeypatch.setattr(cores, "usable_cores", lambda: 4)
    for name in VARIABLES:
        monkeypatch.setenv(name, "9")


@pytest.mark.parametrize("name", ["gpt2", "dnabert2", "hyenadna"])
@pytest.mark.parametrize(("setting", "expected"), [(0, 4), (1, 1), (3, 3), (64, 4)])
def test_the_setting_bounds_the_threads_of_cpp(name: str, setting: int, expected: int) -> None:
    engine = make_engine(Settings(engine="cpu", cpu_threads=setting))
    assert isinstance(engine, CpuEngine)
    engine.load(builtin.load(name))
    [loaded] = engine._loaded.values()
    assert loaded.chosen.encoder.num_threads == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(("setting", "expected"), [(0, 4), (1, 1), (3, 3), (64, 4)])
def test_the_setting_bounds_the_threads_of_libraries(setting: int, expected: int) -> None:
    library_threads.limit_library_threads(setting)
    assert [os.environ[name] for name in VARIABLES] == [str(expected)]


def test_a_front_end_encodes_with_one_thread(tmp_path: Path, monkeypatch: Patch) -> None:
    class FakeServer:
        def __init__(self, made: FrontEnd, unix_socket: object) -> None:
            self.made = made

        def run(self, sockets: object) -> None:
            engine = self.made.encoders.engine
            assert isinstance(engine, CpuEngine)
            assert engine.num_threads == 1
            engine.close()

    monkeypatch.setattr(front_end, "FrontServer", FakeServer)
    monkeypatch.setattr(front_end, "end_normally_on_signals", lambda: None)
    run_front_end(
        Settings(engine="cpu", frontends=2, cpu_threads=3), [], tmp_path / "link", "front-0"
    )
    assert [os.environ[name] for name in VARIABLES] == ["1"]


def test_a_process_with_the_engine_bounds_the_libraries_before_it_loads_them(
    monkeypatch: Patch,
) -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    for name in ("end_normally_on_signals", "keep_large_blocks", "raise_file_limit"):
        monkeypatch.setattr(uvicorn_server, name, lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", stop)
    monkeypatch.setattr(engine_process, "LinkMemory", stop)
    with socket.socket() as listening:
        for threads, run, second in ((3, uvicorn_server.serve, stop), (2, run_engine, listening)):
            with pytest.raises(Stop):
                run(Settings(engine="cpu", cpu_threads=threads), second)  # type: ignore[operator]
            assert [os.environ[name] for name in VARIABLES] == [str(threads)]
