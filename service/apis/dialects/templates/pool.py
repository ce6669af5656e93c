"""Renders chats with templates in separate processes, one chat at a time in each.

    render ──► ChatQueue ──► a free process ──► the answer
                  └ one process accepts only chats that are expected to be quick

Quick chats do not share a core: one more than there are cores waits until one of them ends, or has
taken longer than expected.

If a template takes too long, or nobody waits for its chat any more, its process is killed; another
process is started when it is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any

from service.apis.dialects.templates.memory import ERROR, UNREADABLE, Answer, Request
from service.apis.dialects.templates.process import TemplateProcess, write_request
from service.apis.dialects.templates.queue import Chat, ChatQueue, Flow
from service.batching.work import ClientGone
from service.core.errors import (
    DeadlinePassed,
    Draining,
    InvalidRequest,
    QueueFull,
    ServiceError,
    TemplateFailed,
)
from service.core.json_elements import RawList
from service.observability.metrics import Metrics

logger = logging.getLogger(__name__)
MAX_WAITING = 256  # Maximum number of waiting chats.
MAX_FLOW_TO_FREE = 4  # Maximum ratio of a flow's chats to the free places: alone, 204 of 256.
WATCH_AFTER_S = 0.05  # Clients are watched only after this time, which most chats do not reach.
PATIENCE_S = 0.02  # A chat that takes longer does not count as quick.


class UnreadableMessages(Exception):
    """A message that was passed as JSON cannot be parsed or converted."""


class TemplatePool:
    """The processes in which templates run.

    Args:
        timeout_s: the maximum number of seconds to render a chat.
        max_chars: the maximum number of characters of a rendered chat.
        num_processes: the maximum number of processes; each is started when it is needed.
        num_cores: the number of cores, and of quick chats that are rendered at once.
        metrics: records the time for which chats wait.
        kept_bytes: the maximum size of the messages that each process keeps, in bytes of JSON.
    """

    def __init__(
        self,
        timeout_s: float,
        max_chars: int,
        num_processes: int,
        num_cores: int,
        metrics: Metrics,
        kept_bytes: int = 0,
    ) -> None:
        self.timeout_s = timeout_s
        self.max_chars = max_chars
        self.num_processes = num_processes
        self.num_cores = num_cores
        self.kept_bytes = kept_bytes
        self.queue = ChatQueue()
        self._metrics = metrics
        self._idle: list[TemplateProcess] = []
        self._running: dict[Chat, asyncio.Task[None]] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        metrics.gauges.waiting_chats = lambda: len(self.queue)

    async def render(
        self,
        flow: Flow,
        template: str,
        variables: dict[str, Any],
        wait_s: float,
        receive: Callable[[], Awaitable[Any]] | None = None,
        messages: RawList | None = None,
        scope: str = "",
    ) -> bytes:
        """Render a chat as text in UTF-8.

        Args:
            flow: the key and the vocabulary of the chat.
            template: the source of the template.
            variables: the variables of the template.
            wait_s: the maximum number of seconds to wait for the result.
            receive: the ASGI callable that reports a disconnected client; None: do not watch the
                client.
            messages: the messages as JSON; None: `variables` contains them.
            scope: the owner of the chat; the process may reuse `messages` for its later chats.

        Raises:
            UnreadableMessages: one of `messages` is invalid.
            QueueFull: too many chats are waiting.
            DeadlinePassed: the result was not ready within `wait_s`.
            InvalidRequest: the template refuses the messages, or is invalid.
            TemplateFailed: rendering took too long, or ended the process.
            ClientGone: the client has disconnected.
        """
        json = write_request(
            {
                "timeout_s": self.timeout_s,
                "scope": scope,
                "template": template,
                "variables": variables,
                "max_chars": self.max_chars,
            }
        )
        request = (
            Request(json) if messages is None else Request(json, messages.json, messages.places)
        )
        chat = Chat(flow, request, asyncio.get_running_loop().create_future())
        self._enter(chat)
        watcher: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.wait({chat.result}, timeout=WATCH_AFTER_S)
                if receive is not None and not chat.result.done():
                    watcher = asyncio.ensure_future(_refuse_when_gone(receive, chat))
                answer = await chat.result
        except TimeoutError as error:
            raise DeadlinePassed("the deadline passed before the chat was rendered") from error
        finally:
            self._leave(chat)
            if watcher is not None:
                watcher.cancel()
        if answer.kind == UNREADABLE:
            raise UnreadableMessages
        if answer.kind == ERROR:
            message = answer.data.decode(errors="replace")
            raise InvalidRequest(f"the chat template raised an error: {message}", "/messages")
        return answer.data

    def _enter(self, chat: Chat) -> None:
        """Add a chat to the queue, or begin to render it.

        Raises:
            QueueFull: too many chats are waiting, in total or of its flow.
            Draining: the service is stopping.
        """
        if self._is_closed:
            raise Draining("the service is stopping; try another replica")
        num_free = MAX_WAITING - len(self.queue)
        if num_free <= 0 or self.queue.count(chat.flow) > MAX_FLOW_TO_FREE * num_free:
            raise QueueFull(
                f"{len(self.queue)} chats are already waiting for their template; try again later"
            )
        self.queue.add(chat)
        self._start_next()

    def _leave(self, chat: Chat) -> None:
        """Remove a chat from the queue, or kill its process, unless it has been rendered."""
        self.queue.remove(chat)
        if (task := self._running.get(chat)) is not None:
            task.cancel()

    def _start_next(self) -> None:
        """Begin to render waiting chats, one for each free process and core."""
        while len(self._running) < self.num_processes and not self._is_closed:
            num_slow = sum(map(self.queue.is_slow, self._running))
            if self._count_quick() >= self.num_cores:
                self._plan_retry()
                return
            only_quick = self.num_processes > 1 and num_slow >= self.num_processes - 1
            chat = self.queue.take(only_quick)
            if chat is None:
                return
            chat.begun = perf_counter()
            task = self._running[chat] = asyncio.ensure_future(self._run(chat))
            # A task that is cancelled at once never runs.
            task.add_done_callback(partial(self._end_running, chat))

    def _count_quick(self) -> int:
        """Count the running chats that are expected to end soon."""
        latest = perf_counter() - PATIENCE_S
        return sum(chat.begun > latest and not self.queue.is_slow(chat) for chat in self._running)

    def _plan_retry(self) -> None:
        """Begin to render waiting chats after PATIENCE_S, in case none of the running ones ends."""
        if self._retry is None and len(self.queue):
            self._retry = asyncio.get_running_loop().call_later(PATIENCE_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._start_next()

    def _end_running(self, chat: Chat, _: object) -> None:
        del self._running[chat]
        self._start_next()

    async def _run(self, chat: Chat) -> None:
        """Render a chat, and set its result."""
        answer: Answer | ServiceError
        try:
            answer = await self._render(chat)
        except (TimeoutError, OSError, EOFError) as error:
            reason = "took too long" if isinstance(error, TimeoutError) else "ended its process"
            answer = TemplateFailed(f"the chat template {reason}", "/messages")
        if chat.result.done():
            return
        if isinstance(answer, ServiceError):
            chat.result.set_exception(answer)
        else:
            chat.result.set_result(answer)

    async def _render(self, chat: Chat) -> Answer:
        """Render a chat in an idle process or in a new one; kill the process if this fails.

        Raises:
            TimeoutError, OSError, EOFError: as `TemplateProcess`.
        """
        process = await self._find_process()
        begin = None
        try:
            await process.start()
            begin = perf_counter()
            self._metrics.template_wait_seconds.add(begin - chat.submitted)
            answer = await process.render(chat.request, self.timeout_s)
        except BaseException:
            ending = asyncio.ensure_future(process.end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)
            raise
        finally:
            if begin is not None:
                self.queue.costs.learn(chat.flow.vocabulary, perf_counter() - begin)
        self._idle.append(process)
        return answer

    async def _find_process(self) -> TemplateProcess:
        """Return the idle process that was used last, or one that is not started yet."""
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
            logger.warning("the process of chat templates has ended; another is started")
            await process.end()
        return TemplateProcess(self.max_chars, self.kept_bytes)

    async def close(self) -> None:
        """Refuse all chats, and kill the processes."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        chats = list(self._running)
        while (chat := self.queue.take(only_quick=False)) is not None:
            chats.append(chat)
        stopped = Draining("the service stopped before it had rendered this chat")
        for chat in chats:
            if not chat.result.done():
                chat.result.set_exception(stopped)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._ending)
        for process in self._idle:
            await process.end()
        self._idle.clear()


async def _refuse_when_gone(receive: Callable[[], Awaitable[Any]], chat: Chat) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not chat.result.done():
        chat.result.set_exception(ClientGone())
