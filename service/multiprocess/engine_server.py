"""The engine process: the engine, the vocabularies and gRPC, for front ends that are linked to it.

It runs the same service as a process that does everything itself, its batcher included, but its
requests come over links: batches of texts, and whole HTTP requests about what is one for all.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from service.batching.work import AnyWork
from service.core.errors import NotReady, ServiceError
from service.multiprocess.link.batch_messages import work_of
from service.multiprocess.link.batch_reply import BatchReply
from service.multiprocess.link.channel import Link, Reply
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import FRONT_BYTES, LinkMemory
from service.multiprocess.remote_engine import UNKNOWN_DIGEST, residency_values
from service.multiprocess.request_forwarding import answer_forwarded
from service.observability.process_metrics import Families, collect_families
from service.operations.readiness import readiness
from service.registry.entries import LoadedVocabulary
from service.security.rate_limits import Usage
from service.server.app import Application
from vocabularies.formats.canonical import read_canonical
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
NAME = "engine"
STATUS_PERIOD_S = 0.25
FOLLOW_TIMEOUT_S = 10.0
GATHER_TIMEOUT_S = 1.0
PAGE_LOCKED_BYTES = 1 << 31  # Of all front ends' memory.
COPIED_BYTES = 1 << 18  # Larger arrays are copied by a thread, the loop kept free.
MAX_SENT = 16  # Vocabularies without a name here that front ends have sent.


class EngineServer:
    """Answers front ends, and tells them what there is.

    Args:
        app: the application of this process.
        num_front_ends: how many there should be.
        memory: of this process, which they read.
    """

    def __init__(self, app: Application, num_front_ends: int, memory: LinkMemory) -> None:
        self.app, self.service = app.fastapi, app.service
        self.num_front_ends = num_front_ends
        self.memory = memory
        self.links: dict[Link, str] = {}
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self._waiting: dict[Link, int] = {}
        self._sent: dict[str, Vocabulary] = {}
        self._stamps: dict[str, tuple[object, int]] = {}
        self._last: dict[str, Any] = {}
        self._answers: dict[str, Callable[[Link, Message], Coroutine[Any, Any, Message]]] = {
            "request": lambda _, message: answer_forwarded(self.app, message),
            "load_name": self._load_name,
            "load_vocabulary": self._load_vocabulary,
            "vocabulary": self._vocabulary,
            "families": self._gather,
        }

    def protocol(self) -> Link:
        """The end of a new connection."""
        return Link(self._answer, self._lost, self.memory)

    def _answer(self, link: Link, message: Message, reply: Reply) -> None:
        if message.kind == "hello":
            self.links[link] = message.values["name"]
            self.is_empty.clear()
            self._send_status()
            call = link.call(Message("vocabulary_list", self.list_vocabularies()))
            call.add_done_callback(_note_failure)
        elif message.kind == "load":
            self._waiting[link] = message.values["waiting"]
            self._charge(message.values["usage"], link)
        elif message.kind == "batch":
            self._run_batch(message, reply)
        else:
            reply.complete_by(self._answers[message.kind](link, message))

    def _lost(self, link: Link) -> None:
        name = self.links.pop(link, "")
        self._waiting.pop(link, None)
        if not self.links:
            self.is_empty.set()
        if name and not self.service.draining:
            logger.warning("%s is gone; %d are left", name, len(self.links))
            self._send_status()

    def _run_batch(self, message: Message, reply: Reply) -> None:
        """Have a batch computed that a front end has joined."""
        completion = BatchReply(reply, self._copy_large)
        try:
            work = self._make_work(message)
            work.future = completion
            self.service.batcher.submit(work)
        except Exception as error:
            completion.set_exception(error)

    def _make_work(self, message: Message) -> AnyWork:
        """Raises ServiceError where a batch is of a vocabulary that is not known here."""
        values = message.values
        work = work_of(message, self._known(values["digest"]))
        work.num_bytes = values.get("bytes", 0)
        work.is_long = values.get("is_long")
        work.deadline = values.get("deadline") or float("inf")
        return work

    def _copy_large(self, message: Message) -> Coroutine[Any, Any, Message] | None:
        """Copy large arrays that the other side cannot read; None where there are none."""
        large = [array for array in message.arrays if array.nbytes > COPIED_BYTES]
        if all(self.memory.place_of(array) is not None for array in large):
            return None
        return self._copy_arrays(message)

    async def _copy_arrays(self, message: Message) -> Message:
        arrays = [np.ascontiguousarray(array) for array in message.arrays]
        message.arrays = await asyncio.to_thread(lambda: [*map(self.memory.placed, arrays)])
        return message

    def _known(self, digest: str) -> Vocabulary:
        """Raises ServiceError with the code UNKNOWN_DIGEST where the front end has to send it."""
        for entry in self.service.registry.entries.values():
            if entry.vocabulary.digest == digest:
                return entry.vocabulary
        if (vocabulary := self._sent.get(digest)) is not None:
            return vocabulary
        refusal = NotReady("no vocabulary has this digest here")
        refusal.code = UNKNOWN_DIGEST
        raise refusal

    async def _load_vocabulary(self, link: Link, message: Message) -> Message:
        """Make a vocabulary ready that no name means here, or not any more."""
        content = message.arrays[0].tobytes()
        vocabulary = await asyncio.to_thread(read_canonical, content)
        pinned = message.values["pinned"]
        residency = await asyncio.to_thread(self.service.get_host().engine.load, vocabulary, pinned)
        self._sent[vocabulary.digest] = vocabulary
        await asyncio.to_thread(self.service.get_host().registry.make_room, vocabulary.digest)
        if len(self._sent) > MAX_SENT:
            oldest = next(iter(self._sent))
            del self._sent[oldest]
            await asyncio.to_thread(self.service.get_host().registry.forget_unused, oldest)
        return Message("answer", residency_values(residency))

    async def _load_name(self, link: Link, message: Message) -> Message:
        """Load a vocabulary by its name; answered when all front ends have it."""
        await self.service.registry.loaded(message.values["name"])
        await self.spread()
        return Message("answer")

    async def _vocabulary(self, link: Link, message: Message) -> Message:
        """A loaded vocabulary, and what came with it."""
        name, digest = message.values["name"], message.values["digest"]
        entry = self.service.registry.entries.get(name)
        if entry is None or entry.vocabulary.digest != digest:
            raise NotReady(f"{name} means another vocabulary by now")
        content = await asyncio.to_thread(canonical.to_bytes, entry.vocabulary)
        config = self.service.registry.configs.get(name)
        values = {"config": None if config is None else config.values}
        return Message("answer", values, [np.frombuffer(content, np.uint8)])

    def list_vocabularies(self) -> dict[str, Any]:
        """Every name; of what is loaded the digest, a stamp of what came with it, how it is held.

        A front end reads a vocabulary anew when its digest or its stamp is another one.
        """
        registry = self.service.registry
        return {
            "known": [[k.name, k.source, k.licence, k.builtin] for k in registry.known.values()],
            "failures": dict(registry.failures),
            "entries": {
                name: [
                    entry.vocabulary.digest,
                    self._stamp(entry),
                    residency_values(entry.residency),
                ]
                for name, entry in list(registry.entries.items())
            },
            "is_complete": self.service.preloaded,
        }

    def _stamp(self, entry: LoadedVocabulary) -> int:
        """A number that is another one when another configuration came with a vocabulary."""
        config = self.service.registry.configs.get(entry.name)
        kept, stamp = self._stamps.get(entry.name, (None, 0))
        if kept is not config:
            stamp += 1
            self._stamps[entry.name] = config, stamp
        return stamp

    def _send_status(self) -> None:
        """Tell each front end how the engine is, and what waits in the other front ends."""
        reasons, waiting = readiness(self.service), sum(self._waiting.values())
        for link in self.links:
            elsewhere = waiting - self._waiting.get(link, 0)
            link.tell(Message("status", {"reasons": reasons, "elsewhere": elsewhere}))

    def _charge(self, usage: Usage, link: Link | None) -> None:
        """Charge what one process has let in to all others; no link: it is this one."""
        limits = self.service.guard.limits
        if link is not None:
            limits.charge_usage(usage)
        for other in self.links if usage else ():
            if other is not link:
                other.tell(Message("usage", {"usage": usage}))

    def reasons(self) -> list[str]:
        """Front ends that are not there."""
        missing = self.num_front_ends - len(self.links)
        if missing <= 0 or self.service.draining:
            return []
        return [f"{missing} of {self.num_front_ends} front ends are being started"]

    async def spread(self) -> None:
        """Return when every front end has followed the vocabularies that there are now."""
        listed = self._last = self.list_vocabularies()
        calls = [link.call(Message("vocabulary_list", listed)) for link in list(self.links)]
        if not calls:
            return
        done, late = await asyncio.wait(calls, timeout=FOLLOW_TIMEOUT_S)
        for call in done:
            _note_failure(call)
        if late:
            logger.error("%d front ends do not follow the list of vocabularies", len(late))

    async def keep_informing(self) -> None:
        """Tell the front ends how the engine is, and what has been loaded meanwhile."""
        while True:
            await asyncio.sleep(STATUS_PERIOD_S)
            self._send_status()
            self._charge(self.service.guard.limits.take_usage(), None)
            if self.list_vocabularies() != self._last:
                await self.spread()
            await self._page_lock()

    async def _page_lock(self) -> None:
        """Have a device read what front ends send from where it lies, once they send it."""
        if not self.service.preloaded:  # The device is not open yet.
            return
        share = self.service.get_host().engine.share_host
        pages = PAGE_LOCKED_BYTES // self.num_front_ends // mmap.PAGESIZE
        num_bytes = min(FRONT_BYTES, pages * mmap.PAGESIZE)
        others = [link.other for link in self.links]
        await asyncio.gather(
            *(
                asyncio.to_thread(memory.page_lock, share, num_bytes)
                for memory in others
                if memory is not None and memory.is_used and not memory.is_page_locked
            )
        )

    async def families(self) -> dict[str, Families]:
        """What every process counts."""
        return await self._gathered(None)

    async def _gathered(self, asking: Link | None) -> dict[str, Families]:
        gathered = {NAME: collect_families(self.service.metrics.registry)}
        calls = {
            link.call(Message("families")): name
            for link, name in self.links.items()
            if link is not asking
        }
        if calls:
            done, _ = await asyncio.wait(calls, timeout=GATHER_TIMEOUT_S)
            for call in done:
                if call.exception() is None:
                    gathered[calls[call]] = call.result().values["families"]
        return gathered

    async def _gather(self, link: Link, message: Message) -> Message:
        return Message("answer", {"families": await self._gathered(link)})


def _note_failure(call: asyncio.Future[Message]) -> None:
    """A front end that ends meanwhile follows after its next start."""
    error = None if call.cancelled() else call.exception()
    if error is not None and not isinstance(error, ServiceError):
        logger.error("This is a bug. A front end did not follow", exc_info=error)
