"""One process of chat templates: starts it, sends it chats, and kills it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

from service.apis.dialects.template_worker import READY

START_S = 10.0  # The most seconds that starting the process may take.


class TemplateProcess:
    """A process that renders one chat at a time."""

    def __init__(self) -> None:
        self._spawning: asyncio.Task[Process] | None = None
        self._process: Process | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended while it waited, as when memory is short."""
        if self._process is None:
            return False
        assert self._process.stdin is not None
        return self._process.returncode is not None or self._process.stdin.is_closing()

    async def start(self) -> None:
        """Start the process if it does not run.

        Raises:
            TimeoutError: it took too long.
            OSError, EOFError: the process ended.
        """
        if self._process is None:
            await asyncio.wait_for(self._start(), START_S)

    async def _start(self) -> None:
        program = (sys.executable, "-m", "service.apis.dialects.template_worker")
        make = asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE)
        self._spawning = asyncio.ensure_future(make)
        # Not cancelled with this task: asyncio would leave the pipes open.
        self._process = await asyncio.shield(self._spawning)
        assert self._process.stdout is not None
        await self._process.stdout.readexactly(len(READY))

    async def render(self, body: bytes, timeout_s: float) -> dict[str, Any]:
        """Return the answer of the process to a request, if it comes within `timeout_s`.

        Raises:
            TimeoutError, OSError, EOFError: as `start`.
        """
        return await asyncio.wait_for(self._send(body), timeout_s)

    async def _send(self, body: bytes) -> dict[str, Any]:
        """Send a request to the process, and return its answer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(struct.pack("<I", len(body)) + body)
        await process.stdin.drain()
        (size,) = struct.unpack("<I", await process.stdout.readexactly(4))
        answer: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
        return answer

    async def end(self) -> None:
        """Kill the process, and wait until it has ended and its pipes are closed."""
        spawning, self._spawning, self._process = self._spawning, None, None
        if spawning is None:
            return
        with contextlib.suppress(OSError):  # It could not be started.
            process = await spawning
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
