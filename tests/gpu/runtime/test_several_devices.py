"""With several CUDA devices each call runs on its own, and the caller's device stays current."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import gpu.runtime.cuda_stream
from gpu.errors import BadHandle
from gpu.memory.output_buffer import OutputBuffer
from gpu.runtime import cuda_device
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.cuda_stream import CudaStream, SwitchingStream
from tests.support.emulation.device import EmulatedDevice

CALLERS = 2  # The device that is current in the caller's thread.


class FakeArray:
    """Eight ids on a device."""

    def __init__(self, address: int) -> None:
        data = (address, False)
        self.__cuda_array_interface__ = {"data": data, "shape": (8,), "typestr": "<i4"}


class FakeCuda:
    """CUDA with three devices, which notes the current device of each call."""

    def __init__(self) -> None:
        self.current, self.calls = CALLERS, list[tuple[str, int]]()
        self.owner = 0
        fake = self

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def __enter__(self) -> None:
                self.before, fake.current = fake.current, self.number

            def __exit__(self, *_: object) -> None:
                fake.current = self.before

        class Recorded:
            """A stream, an event or a recording."""

            ptr = 0x57

            def __init__(self, **_: object) -> None:
                fake.note("make")

            def __getattr__(self, name: str) -> Any:
                return lambda *_: fake.note(name) or self

        names = ("memcpyAsync", "memsetAsync", "ipcCloseMemHandle")
        runtime = SimpleNamespace(
            memcpyDefault=4,
            CUDARuntimeError=RuntimeError,
            ipcOpenMemHandle=lambda handle: fake.note("open") or 4096,
            pointerGetAttributes=lambda address: SimpleNamespace(device=fake.owner),
            **{name: lambda *_, name=name: fake.note(name) for name in names},
        )
        cuda = SimpleNamespace(
            Device=Device,
            Stream=Recorded,
            Event=Recorded,
            runtime=runtime,
            get_elapsed_time=lambda begin, end: fake.note("elapsed") or 1000,
        )
        self.cupy = SimpleNamespace(cuda=cuda)

    def note(self, name: str) -> None:
        self.calls.append((name, self.current))


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    monkeypatch.setattr(gpu.runtime.cuda_stream, "driver_of", lambda stream: None)
    return FakeCuda()


def device_of(cuda: FakeCuda, number: int, num_devices: int = 3) -> CudaDevice:
    made = object.__new__(CudaDevice)
    made._cupy, made._runtime, made.number = cuda.cupy, cuda.cupy.cuda.runtime, number
    made._functions, made._num_devices = None, num_devices
    return made


def test_every_call_of_a_stream_runs_on_its_device_and_restores_the_callers(cuda):
    device = device_of(cuda, 1)
    stream, other = device.stream(), device.stream()
    assert isinstance(stream, SwitchingStream)
    stream.copy_in(1, 2, 3)
    stream.copy_out(1, 2, 3)
    stream.clear(1, 2)
    stream.begin_capture()
    stream.replay(stream.end_capture())
    stream.follow(other)
    assert stream.seconds(stream.mark(), stream.mark()) == 1
    stream.synchronize()
    called = {name for name, _ in cuda.calls}
    expected = {"memcpyAsync", "memsetAsync", "begin_capture", "end_capture", "launch", "record"}
    assert called >= expected | {"wait_event", "elapsed", "synchronize"}
    assert {number for _, number in cuda.calls} == {1}
    assert cuda.current == CALLERS


def test_where_there_is_one_device_nothing_switches(cuda):
    assert type(device_of(cuda, 0, num_devices=1).stream()) is CudaStream


def test_ids_are_not_written_to_memory_of_another_device(cuda):
    cuda.owner = 1
    assert device_of(cuda, 1).has_memory(4096)
    assert not device_of(cuda, 0).has_memory(4096)
    assert device_of(cuda, 0, num_devices=1).has_memory(4096)
    device, out = EmulatedDevice(), FakeArray(4096)
    assert OutputBuffer.of(out, device, ("<i4",)).num_bytes == 32
    device.foreign.add(4096)
    with pytest.raises(ValueError, match="another device"):
        OutputBuffer.of(out, device, ("<i4",))


@pytest.fixture(autouse=True)
def shared_memory_of_64_bytes(monkeypatch):
    monkeypatch.setattr(cuda_device, "count_shared_bytes", lambda address: 64)


def test_memory_that_is_smaller_than_the_client_says_is_not_opened(cuda):
    with pytest.raises(BadHandle, match="the memory has 64 bytes, not 65"):
        device_of(cuda, 0).open_shared(b"handle", 65)
    assert cuda.calls == [("open", 0), ("ipcCloseMemHandle", 0)]


def test_memory_of_another_device_is_not_opened_through_this_one(cuda):
    cuda.owner = 1
    assert device_of(cuda, 1).open_shared(b"handle", 64) == 4096
    with pytest.raises(BadHandle, match="to device 1, not to device 0"):
        device_of(cuda, 0).open_shared(b"handle", 64)
    assert cuda.calls == [("open", 1), ("open", 0), ("ipcCloseMemHandle", 0)]
    cuda.owner = -1  # The driver does not say.
    assert device_of(cuda, 0).open_shared(b"handle", 64) == 4096
