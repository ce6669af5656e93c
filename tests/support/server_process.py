"""Runs the service as a process: starts it, waits for it, stops it with SIGTERM."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.data_files import ROOT

# Far above the time on the slowest machine beside other tests, so only a fault reaches them.
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 180.0
POLL_S = 0.05
PATIENT = {
    "WARPTOK_LAME_DUCK_S": "0",
    "WARPTOK_DRAIN_TIMEOUT_S": "120",
    "WARPTOK_REQUEST_TIMEOUT_MS": "120000",
    "WARPTOK_CHAT_TEMPLATE_TIMEOUT_MS": "60000",
}
AT_ONCE_S = (
    60.0  # A stop that does not wait for requests ends within it; requests have twice as long.
)
SAID = re.compile(r"^warptok .+ on (https?://[^\s,]+).*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Server:
    """A running service.

    Attributes:
        url: its base address, without a slash at the end.
        process: the process; its output goes to `log`.
        log: its output on stdout and stderr so far.
        context: how a client speaks TLS with it; None: it does not.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    context: ssl.SSLContext | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def wait_draining(self) -> None:
        """Wait until it accepts no new connection, as after a first SIGTERM.

        Raises:
            AssertionError: it still accepts them after `STOP_TIMEOUT_S`.
        """
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            except ConnectionRefusedError:
                return
            except ConnectionResetError:  # It was just being closed.
                pass
            time.sleep(POLL_S)
        raise AssertionError(f"it still listens:\n{self.log.read_text()}")

    def wait_ready(self) -> None:
        """Wait until /readyz answers 200.

        Raises:
            AssertionError: the process ended, or was not ready in time; with its log.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            code = self.process.poll()
            assert code is None, f"the service ended with {code}:\n{self.log.read_text()}"
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                address = self.url + "/readyz"
                with urllib.request.urlopen(address, timeout=5, context=self.context):
                    return
            time.sleep(POLL_S)
        raise AssertionError(f"not ready after {START_TIMEOUT_S} s:\n{self.log.read_text()}")


@contextlib.contextmanager
def half_request(server: Server) -> Iterator[socket.socket]:
    """Open a connection and send a request without its body, which the server waits for.

    The server's `100 Continue`, read before this is entered, says that it waits for the body.
    """
    head = (
        b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9999\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=STOP_TIMEOUT_S) as connection:
        connection.sendall(head)
        answer = connection.recv(100)
        assert answer == b"HTTP/1.1 100 Continue\r\n\r\n", answer
        connection.sendall(b"{")
        yield connection


def service_environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with these settings instead of its WARPTOK_ ones."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("WARPTOK_")
    }
    return {**inherited, **PATIENT, "WARPTOK_GRPC_PORT": "0", **(settings or {})}


@contextlib.contextmanager
def server_process(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    expect_exit: bool = True,
    prepare: Callable[[], object] | None = None,
    context: ssl.SSLContext | None = None,
    command: Sequence[str] = ("serve",),
) -> Iterator[Server]:
    """Run `python -m service serve` on a free loopback port; yield it ready, stop it with SIGTERM.

    Args:
        folder: the folder for the log.
        settings: environment variables, such as {"WARPTOK_PRELOAD": "gpt2"}.
        expect_exit: False where the test itself ends the process.
        prepare: is called in the new process before the service starts.
        context: how a client speaks TLS with it; None: it does not.
        command: the command and its own options.

    Raises:
        AssertionError: the service did not start, or did not exit with 0 after SIGTERM.
    """
    descriptor, name = tempfile.mkstemp(".log", "service-", folder)
    log = Path(name)
    words = [sys.executable, "-m", "service", *command, "--host", "127.0.0.1", "--port", "0"]
    with open(descriptor, "wb") as output:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=service_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=prepare,
        )
    try:
        server = Server(_where(process, log), process, log, context)
        server.wait_ready()
        yield server
        if expect_exit:
            process.send_signal(signal.SIGTERM)
            code = process.wait(STOP_TIMEOUT_S)
            assert code == 0, f"exit code {code} after SIGTERM:\n{log.read_text()}"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _where(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for the log line with the service's address, and return the address.

    Raises:
        AssertionError: the process ended, or said nothing in time; with its log.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while (said := SAID.search(log.read_text())) is None:
        assert process.poll() is None, f"it ended with {process.returncode}:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"it does not listen:\n{log.read_text()}"
        time.sleep(POLL_S)
    return said[1]
