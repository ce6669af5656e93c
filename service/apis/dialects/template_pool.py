"""Renders chats by templates in a separate process, one chat at a time.

If a template takes too long, its process is killed, and the next chat starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

from service.apis.dialects.template_worker import READY
from service.core.errors import DeadlinePassed, InvalidRequest, QueueFull, TemplateFailed

logger = logging.getLogger(__name__)
START_S = 10.0  # The most seconds that starting the process may take.
MAX_WAITING = 256  # The most chats that wait for the process.


class TemplatePool:
    """The process that templates run in.

    Args:
        timeout_s: the most seconds that rendering a chat may take.
        max_chars: the most characters of a rendered chat.
    """

    def __init__(self, timeout_s: float, max_chars: int) -> None:
        self.timeout_s = timeout_s
        self.max_chars = max_chars
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def render(self, template: str, variables: dict[str, Any], wait_s: float) -> str:
        """Render a chat as text.

        Args:
            template: the source of the template.
            variables: the values that the template reads.
            wait_s: the most seconds to wait for the result.

        Raises:
            QueueFull: too many chats are waiting.
            DeadlinePassed: the result did not come within `wait_s`.
            InvalidRequest: the template refuses the messages, or is invalid.
            TemplateFailed: rendering took too long, or ended the process.
        """
        request = {"template": template, "variables": variables, "max_chars": self.max_chars}
        try:
            body = json.dumps(request).encode()
        except RecursionError as error:
            raise InvalidRequest("is nested too deeply", "/messages") from error
        if self._waiting >= MAX_WAITING:
            raise QueueFull(f"{self._waiting} chats are waiting for their template")
        self._waiting += 1
        try:
            answer = await asyncio.wait_for(self._render_alone(body), wait_s)
        except TimeoutError as error:
            raise DeadlinePassed("the deadline passed before the chat was rendered") from error
        finally:
            self._waiting -= 1
        if "error" in answer:
            raise InvalidRequest(f"the chat template says: {answer['error']}", "/messages")
        text: str = answer["text"]
        return text

    async def _render_alone(self, body: bytes) -> dict[str, str]:
        """Return the answer of the process, which is started if needed; one chat at a time."""
        async with self._lock:
            try:
                if self._has_ended():
                    logger.warning("the process of chat templates has ended; another is started")
                    await self._end()
                if self._process is None:
                    await asyncio.wait_for(self._start(), START_S)
                return await asyncio.wait_for(self._send(body), self.timeout_s)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                await self._end()
                reason = "took too long" if isinstance(error, TimeoutError) else "ended its process"
                raise TemplateFailed(f"the chat template {reason}", "/messages") from error
            except asyncio.CancelledError:
                await self._end()
                raise

    def _has_ended(self) -> bool:
        """Return whether the process has ended while it waited, as when memory is short."""
        if self._process is None:
            return False
        assert self._process.stdin is not None
        return self._process.returncode is not None or self._process.stdin.is_closing()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "service.apis.dialects.template_worker", stdin=PIPE, stdout=PIPE
        )
        assert self._process.stdout is not None
        await self._process.stdout.readexactly(len(READY))

    async def _send(self, body: bytes) -> dict[str, str]:
        """Send a request to the process, and return its answer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(struct.pack("<I", len(body)) + body)
        await process.stdin.drain()
        (size,) = struct.unpack("<I", await process.stdout.readexactly(4))
        answer: dict[str, str] = json.loads(await process.stdout.readexactly(size))
        return answer

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()
