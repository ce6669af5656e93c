"""The program of a GPU worker, which owns one device and runs the calls of its parent.

    main connection     opened; then new connections, and the end
    other connections   a thread each: receive a call, compute it, send the answer

Its argument is a JSON object. It sees only its own device (CUDA_VISIBLE_DEVICES). It exits
immediately when the parent has ended; when the CUDA context is lost, it first reports this to the
parent.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpu.runtime.cuda_device import CudaDevice
from service.core.settings import Settings
from service.engines.hybrid.opening import open_engine
from service.multiprocess.gpu_workers.connection import Connection
from service.multiprocess.gpu_workers.messages import ANSWER, make_error_message
from service.multiprocess.gpu_workers.parent_memory import ParentMemory
from service.multiprocess.gpu_workers.worker_process import CLOSE, CONNECT
from service.multiprocess.gpu_workers.worker_server import OwnGpu, WorkerServer
from service.multiprocess.link.frames import Message
from service.observability.logging import configure
from service.runtime.malloc import SWITCH_S, keep_large_blocks
from service.runtime.memory_pool import Take

logger = logging.getLogger(__name__)
OpenOwnGpu = Callable[[int, float, Take], OwnGpu]
"""Opens the only device that this process sees: its number in the parent, the share of its free
memory that may be used, and what allocates memory for ids."""


def main(argument: str, open_gpu: OpenOwnGpu) -> int:
    """Run the worker until the parent ends it; return the exit code."""
    values: dict[str, Any] = json.loads(argument)
    for number in (signal.SIGINT, signal.SIGTERM):  # The parent drains first, and then ends it.
        signal.signal(number, signal.SIG_IGN)
    settings = Settings(**values["settings"])
    configure(settings, values["name"])
    keep_large_blocks()
    sys.setswitchinterval(SWITCH_S)
    end = socket.socket(fileno=values["socket"])
    threading.Thread(target=_end_with_parent, args=[end], daemon=True).start()
    connection = Connection(end)
    memory = ParentMemory(values["memory"])
    try:
        gpu = open_gpu(values["number"], settings.gpu_memory_share, memory.take)
    except Exception as error:
        connection.send(make_error_message(error))
        return 1
    connection.send(Message(ANSWER, {"device": gpu.opened.device}))
    server = WorkerServer(gpu, memory)
    _accept(connection, server)
    server.wait_until_idle()
    gpu.opened.gpu.close()
    return 0


def open_own_gpu(number: int, memory_share: float, take: Take) -> OwnGpu:
    """Open the CUDA device of this process, and pin the process to the cores near it."""
    device = CudaDevice()
    if cores := device.near_cores:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)  # Of this thread, and of those that it starts.
    return OwnGpu(device, open_engine(device, number, memory_share, take))


def _end_with_parent(end: socket.socket) -> None:
    """End this process at once when the parent has ended, without waiting for threads."""
    poll = select.poll()
    poll.register(end, select.POLLRDHUP)
    poll.poll()
    os._exit(1)


def _accept(main: Connection, server: WorkerServer) -> None:
    """Start a thread for each connection of the parent, until the parent ends the worker."""
    while True:
        frame, files = main.receive()
        if frame.message.kind == CLOSE:
            return
        assert frame.message.kind == CONNECT
        connection = Connection(socket.socket(fileno=files[0]))
        threading.Thread(target=server.serve, args=[connection], daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], open_own_gpu))
