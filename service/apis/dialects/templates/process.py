"""Starts a process that renders chat templates, sends chats to it, and kills it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

import orjson

from service.apis.dialects.templates.memory import (
    ANSWER,
    READY,
    REQUEST,
    Answer,
    ChatMemory,
    Request,
)
from service.core.errors import InvalidRequest
from service.runtime.child_environment import child_environment

MAX_ERROR_BYTES = 1 << 12  # Maximum size of an error message, which has up to 500 characters.
START_S = 10.0  # Maximum time to start the process.


def write_request(request: dict[str, Any]) -> bytes:
    """Convert a request to JSON for a process.

    Raises:
        InvalidRequest: the request is nested too deeply.
    """
    try:
        return orjson.dumps(request)
    except orjson.JSONEncodeError:  # Nested more deeply than orjson supports.
        pass
    try:
        return json.dumps(request).encode()
    except RecursionError as error:
        raise InvalidRequest("is nested too deeply", "/messages") from error


class TemplateProcess:
    """A process that renders one chat at a time.

    Args:
        max_chars: the maximum number of characters of a rendered chat.
        kept_bytes: the maximum size of the messages that it keeps, in bytes of JSON.
    """

    def __init__(self, max_chars: int, kept_bytes: int = 0) -> None:
        self._max_bytes = max(4 * max_chars, MAX_ERROR_BYTES)
        self._kept_bytes = kept_bytes
        self._spawning: asyncio.Task[Process] | None = None
        self._process: Process | None = None
        self._memory: ChatMemory | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended while idle, for example because memory is short."""
        if self._process is None:
            return False
        assert self._process.stdin is not None
        return self._process.returncode is not None or self._process.stdin.is_closing()

    async def start(self) -> None:
        """Start the process if it is not running.

        Raises:
            TimeoutError: starting took too long.
            OSError, EOFError: the process ended.
        """
        if self._process is None:
            await asyncio.wait_for(self._start(), START_S)

    async def _start(self) -> None:
        self._memory = ChatMemory.create()
        number = self._memory.number
        module = "service.apis.dialects.templates.worker"
        program = (sys.executable, "-m", module, str(number), str(self._kept_bytes))
        make = asyncio.create_subprocess_exec(
            *program, stdin=PIPE, stdout=PIPE, pass_fds=(number,), env=child_environment()
        )
        self._spawning = asyncio.ensure_future(make)
        # Not cancelled with this task: asyncio would not close the pipes.
        self._process = await asyncio.shield(self._spawning)
        assert self._process.stdout is not None
        await self._process.stdout.readexactly(len(READY))

    async def render(self, request: Request, timeout_s: float) -> Answer:
        """Send a request to the process, and return the answer.

        Raises:
            TimeoutError: there was no answer within `timeout_s`, or as `start`.
            OSError, EOFError: the process ended, or its answer is too long.
        """
        return await asyncio.wait_for(self._send(request), timeout_s)

    async def _send(self, request: Request) -> Answer:
        """Send a request to the running process, and return the answer."""
        process, memory = self._process, self._memory
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert memory is not None
        memory.write(*request)
        process.stdin.write(REQUEST.pack(*map(len, request)))
        head = await process.stdout.readexactly(ANSWER.size)
        size, kind = ANSWER.unpack(head)
        if size > self._max_bytes:  # A template that broke out of its sandbox could write any size.
            raise OSError(f"the answer has {size} bytes, more than {self._max_bytes}")
        data = memory.read(size)
        memory.give_back()
        return Answer(data, kind)

    async def end(self) -> None:
        """Kill the process, and wait until it has ended and its pipes are closed."""
        spawning, self._spawning, self._process = self._spawning, None, None
        if spawning is None:
            return
        with contextlib.suppress(OSError):  # It was never started.
            process = await spawning
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
