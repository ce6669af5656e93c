"""Runs the service as a process on loopback, and reads its metrics and memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

READY_S, STOP_S = 60.0, 60.0
DEFAULTS = {"WARPTOK_GRPC": "false", "WARPTOK_ENGINE": "cpu", "WARPTOK_LAME_DUCK_S": "0"}
PSS = re.compile(r"^(Pss|Pss_Shmem): +([0-9]+) kB$", re.MULTILINE)
Counters = dict[tuple[str, tuple[str, ...]], float]


class Memory(NamedTuple):
    """The bytes of a service's memory that are in RAM.

    Attributes:
        resident: all of it.
        shared: the part in memory files, such as the pools between front ends and engine process.
    """

    resident: int
    shared: int


@dataclass(frozen=True, slots=True)
class Running:
    """A running service.

    Attributes:
        port: its port on 127.0.0.1.
        log: the file of its output.
    """

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def get(self, path: str) -> bytes:
        """Get the body of a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def counters(self) -> Counters:
        """Read the samples of /metrics by name and label values, summed over all processes."""
        samples: Counters = {}
        for family in text_string_to_metric_families(self.get("/metrics").decode()):
            for sample in family.samples:
                labels = [value for name, value in sample.labels.items() if name != "process"]
                key = sample.name, tuple(labels)
                samples[key] = samples.get(key, 0.0) + sample.value
        return samples

    def memory(self) -> Memory:
        """Read the memory of all processes of the service, shared pages once."""
        total: Counter[str] = Counter()
        for pid in (self.process.pid, *find_descendants(self.process.pid)):
            with contextlib.suppress(OSError):  # It has ended.
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                for name, kilobytes in PSS.findall(rollup):
                    total[name] += 1024 * int(kilobytes)
        return Memory(total["Pss"], total["Pss_Shmem"])

    def scheduled_s(self) -> tuple[float, float]:
        """Read the seconds that the event loop's thread ran, and waited for a core."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat")
        ran, waited, _ = path.read_text().split()
        return int(ran) / 1e9, int(waited) / 1e9

    def terminate(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


@contextlib.contextmanager
def service_process(
    folder: Path, settings: Mapping[str, object], module: str = "service", port: int | None = None
) -> Iterator[Running]:
    """Run a service with settings by name; kill it at the end if it still runs.

    Args:
        folder: the folder for its log.
        settings: its settings.
        module: the module to run.
        port: its port; None: a free one.

    Raises:
        RuntimeError: it did not start; with its log.
    """
    port = port or find_free_port()
    log = folder / "service.log"
    named = {f"WARPTOK_{name.upper()}": str(value) for name, value in settings.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "serve", "--port", str(port)],
            env=os.environ | DEFAULTS | named,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = Running(port, process, log)
    try:
        _wait_ready(running)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def find_descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, theirs included."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *find_descendants(child)]
    return found


def find_free_port() -> int:
    """Return a port on which no process of this machine listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(running: Running) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and running.process.poll() is None:
        with contextlib.suppress(OSError):
            running.get("/readyz")
            return
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start:\n{running.log.read_text()}")
