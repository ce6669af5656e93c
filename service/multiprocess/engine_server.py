"""Answers the front ends; runs in the engine process.

The engine process runs the same service as a single process, including the batcher. It receives
requests over links: batches of texts, and complete HTTP requests about state that all front ends
share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.batching.work import AnyWork
from service.core.errors import NotReady, ServiceError
from service.multiprocess.link.batch_messages import read_work
from service.multiprocess.link.batch_reply import BatchReply
from service.multiprocess.link.channel import Link, Reply
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import FRONT_BYTES, LinkMemory
from service.multiprocess.remote_engine import UNKNOWN_DIGEST, write_residency
from service.multiprocess.request_forwarding import answer_forwarded
from service.observability.process_metrics import Families, collect_families
from service.operations.readiness import readiness
from service.registry.entries import LoadedVocabulary
from service.registry.tokenizer_config import TokenizerConfig
from service.security.rate_limits import Usage
from service.server.app import Application
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
NAME = "engine"
STATUS_PERIOD_S = 0.25
FOLLOW_TIMEOUT_S = 10.0
GATHER_TIMEOUT_S = 1.0
REPLIED_PERIOD_S = 0.02  # Between looks at whether all calls are answered.
PAGE_LOCKED_BYTES = 1 << 31  # Of the memory of all front ends.
COPIED_BYTES = 1 << 18  # Larger arrays are copied by a thread, and not by the event loop.
MAX_UNNAMED = 16  # The most vocabularies without a name that are kept.
T = TypeVar("T")


class EngineServer:
    """Answers front ends, and sends them changes; implements `Processes` for the engine process.

    Args:
        app: the application of this process.
        num_front_ends: the number of front ends that are started.
        memory: the memory of this process that front ends read.

    Attributes:
        links: the name of the front end at each link.
        all_disconnected: set while no front end is connected.
    """

    def __init__(self, app: Application, num_front_ends: int, memory: LinkMemory) -> None:
        self.app = app.fastapi
        self.service = app.service
        self.num_front_ends = num_front_ends
        self.memory = memory
        self.links: dict[Link, str] = {}
        self.all_disconnected = asyncio.Event()
        self.all_disconnected.set()
        self._waiting_bytes: dict[Link, int] = {}
        self._used: dict[Link, list[str]] = {}
        self._names: dict[str, str] = {}  # By digest; an old name is looked for again.
        self._unnamed: dict[str, Vocabulary] = {}
        self._configs: dict[str, _NumberedConfig] = {}
        self._sent: dict[Link, _ListState] = {}
        self._calls: dict[str, Callable[[Link, Message], Coroutine[Any, Any, Message]]] = {
            "request": lambda _, message: answer_forwarded(self.app, message),
            "load_name": self._load_name,
            "load_vocabulary": self._load_vocabulary,
            "vocabulary": self._send_vocabulary,
            "families": self._send_families,
        }

    def protocol(self) -> Link:
        """Make the link for a new connection."""
        return Link(self._handle, self._remove, self.memory)

    def _handle(self, link: Link, message: Message, reply: Reply) -> None:
        if message.kind == "hello":
            self.links[link] = message.values["name"]
            self.all_disconnected.clear()
            self._send_status()
            self._send_list(link).add_done_callback(_log_failure)
        elif message.kind == "load":
            self._waiting_bytes[link] = message.values["waiting"]
            self._used[link] = message.values["vocabularies"]
            self._note_used()
            self._charge(message.values["usage"], link)
        elif message.kind == "batch":
            self._run_batch(message, reply)
        else:
            reply.complete_by(self._calls[message.kind](link, message))

    def _remove(self, link: Link) -> None:
        """Remove the link of a connection that has ended."""
        name = self.links.pop(link, "")
        self._waiting_bytes.pop(link, None)
        self._used.pop(link, None)
        self._sent.pop(link, None)
        self._note_used()
        if not self.links:
            self.all_disconnected.set()
        if name and not self.service.draining:
            logger.warning("%s has disconnected; %d are connected", name, len(self.links))
            self._send_status()

    def _note_used(self) -> None:
        """Record which vocabularies front ends use most, so that the metrics include them."""
        self.service.metrics.used_elsewhere = frozenset().union(*self._used.values())

    def _run_batch(self, message: Message, reply: Reply) -> None:
        """Submit a front end's batch to the batcher of this process."""
        completion = BatchReply(reply, self._copy_large)
        try:
            work = self._make_work(message)
            work.future = completion
            self.service.batcher.submit(work)
        except Exception as error:
            completion.set_exception(error)
            # Its frames have the texts, in memory that the front end gets back only afterwards.
            error.__traceback__ = None

    def _make_work(self, message: Message) -> AnyWork:
        """Make the work item of a batch; raise ServiceError if its vocabulary is unknown here."""
        values = message.values
        work = read_work(message, self._find_vocabulary(values["digest"]))
        work.num_bytes = values.get("bytes", 0)
        work.is_long = values.get("is_long")
        work.deadline = values.get("deadline") or float("inf")
        return work

    def _copy_large(self, message: Message) -> Coroutine[Any, Any, Message] | None:
        """Copy large arrays to shared memory; return None if all are there already."""
        large = [array for array in message.arrays if array.nbytes > COPIED_BYTES]
        if all(self.memory.find_offset(array) is not None for array in large):
            return None
        return self._copy_arrays(message)

    async def _copy_arrays(self, message: Message) -> Message:
        def copy() -> list[NDArray[Any]]:
            return [self.memory.place(array).array for array in message.arrays]

        message.arrays = await asyncio.to_thread(copy)
        return message

    def _find_vocabulary(self, digest: str) -> Vocabulary:
        """Find a vocabulary by its digest.

        Raises:
            ServiceError: with the code UNKNOWN_DIGEST; the front end has to send the vocabulary.
        """
        found = self._find_named(digest) or self._unnamed.get(digest)
        if found is None:
            self._names = {
                entry.vocabulary.digest: name
                for name, entry in list(self.service.registry.entries.items())
            }
            found = self._find_named(digest)
        if found is None:
            raise _make_unknown_digest()
        return found

    def _find_named(self, digest: str) -> Vocabulary | None:
        """Find a vocabulary by the name under which its digest was found last time."""
        entry = self.service.registry.entries.get(self._names.get(digest, ""))
        if entry is None or entry.vocabulary.digest != digest:
            return None
        return entry.vocabulary

    async def _load_vocabulary(self, link: Link, message: Message) -> Message:
        """Load a vocabulary that a front end sends because no name refers to it here any more."""
        content = message.arrays[0].tobytes()
        vocabulary = await asyncio.to_thread(read_canonical, content)
        permanent = message.values["permanent"]
        parts = self.service.get_engine_parts()
        residency = await asyncio.to_thread(parts.engine.load, vocabulary, permanent)
        self._unnamed[vocabulary.digest] = vocabulary
        await asyncio.to_thread(parts.registry.evict, vocabulary.digest)
        if len(self._unnamed) > MAX_UNNAMED:
            oldest = next(iter(self._unnamed))
            del self._unnamed[oldest]
            await asyncio.to_thread(parts.registry.forget_unused, oldest)
        return Message("answer", write_residency(residency))

    async def _load_name(self, link: Link, message: Message) -> Message:
        """Load a vocabulary by name; return when all front ends have it."""
        await self.service.registry.get_loaded(message.values["name"], message.values["where"])
        await self.synchronize()
        return Message("answer")

    async def _send_vocabulary(self, link: Link, message: Message) -> Message:
        """Return a loaded vocabulary and its tokenizer configuration as a message."""
        name, digest = message.values["name"], message.values["digest"]
        entry = self.service.registry.entries.get(name)
        if entry is None or entry.vocabulary.digest != digest:
            raise NotReady(f"{name} was replaced by another vocabulary during the request")
        content = await asyncio.to_thread(canonical.to_bytes, entry.vocabulary)
        values = {"config": None if entry.config is None else entry.config.values}
        return Message("answer", values, [np.frombuffer(content, np.uint8)])

    def list_vocabularies(self, names: list[str] | None = None) -> dict[str, Any]:
        """Describe the vocabularies with the given names; None: all names.

        The entry of a loaded vocabulary contains its digest, configuration number and state. A
        front end reads the vocabulary again when its digest or configuration number changes.
        """
        registry = self.service.registry
        known = _select(registry.known, names)
        return {
            "names": names,
            "known": {
                name: [each.source, each.licence, each.builtin, each.notes]
                for name, each in known.items()
            },
            "aliases": _select(registry.aliases, names),
            "failures": _select(registry.failures, names),
            "entries": {
                name: [
                    entry.vocabulary.digest,
                    self._number_config(entry),
                    write_residency(entry.residency),
                ]
                for name, entry in _select(registry.entries, names).items()
                if name in known
            },
            "is_complete": self.service.preloaded,
        }

    def _send_list(self, link: Link) -> asyncio.Future[Message]:
        """Send a front end the changes since its last list; its first list has all names."""
        changes = self.service.get_engine_parts().registry.changes
        last, state = self._sent.get(link), self._get_list_state()
        names = None if last is None else changes.names_since(last.num_changes)
        self._sent[link] = state
        return link.call(Message("vocabulary_list", self.list_vocabularies(names)))

    def _get_list_state(self) -> _ListState:
        changes = self.service.get_engine_parts().registry.changes
        return _ListState(changes.number, self.service.preloaded)

    def _number_config(self, entry: LoadedVocabulary) -> int:
        """Return the number of a vocabulary's configuration, which increases with each change."""
        config = entry.config
        last = self._configs.get(entry.name, _NumberedConfig(None, 0))
        if last.config is not config:
            last = self._configs[entry.name] = _NumberedConfig(config, last.number + 1)
        return last.number

    def _send_status(self) -> None:
        """Send each front end the engine's state and the bytes waiting in other processes."""
        reasons = readiness(self.service)
        all_bytes = sum(self._waiting_bytes.values())
        for link in self.links:
            elsewhere = all_bytes - self._waiting_bytes.get(link, 0)
            link.notify(Message("status", {"reasons": reasons, "elsewhere": elsewhere}))

    def _charge(self, usage: Usage, link: Link | None) -> None:
        """Charge the usage of one process, or of this one (None), to all others' rate limits."""
        limits = self.service.guard.limits
        if link is not None:
            limits.charge_usage(usage)
        for other in self.links if usage else ():
            if other is not link:
                other.notify(Message("usage", {"usage": usage}))

    def reasons(self) -> list[str]:
        """Return the reason why the service is not ready, if front ends are missing."""
        missing = self.num_front_ends - len(self.links)
        if missing <= 0 or self.service.draining:
            return []
        return [f"{missing} of {self.num_front_ends} front ends are being started"]

    async def wait_until_replied(self, timeout_s: float) -> None:
        """Wait until no front end waits for a reply, or until the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(link.num_replies for link in self.links):
                    await asyncio.sleep(REPLIED_PERIOD_S)

    async def synchronize(self) -> None:
        """Send the changes of vocabularies; wait until every front end has applied them."""
        calls = [self._send_list(link) for link in list(self.links)]
        if not calls:
            return
        done, late = await asyncio.wait(calls, timeout=FOLLOW_TIMEOUT_S)
        for call in done:
            _log_failure(call)
        if late:
            logger.error("%d front ends do not follow the list of vocabularies", len(late))

    async def keep_updating(self) -> None:
        """Send front ends the state of the engine and new vocabularies, until cancelled."""
        # A front end that hangs, or a device, may delay a list for long, but no state.
        following = asyncio.create_task(self._keep_following())
        try:
            while True:
                await asyncio.sleep(STATUS_PERIOD_S)
                self._send_status()
                self._charge(self.service.guard.limits.take_usage(), None)
        finally:
            following.cancel()

    async def _keep_following(self) -> None:
        """Send front ends new vocabularies, and page-lock their memory, until cancelled."""
        while True:
            await asyncio.sleep(STATUS_PERIOD_S)
            try:
                state = self._get_list_state()
                if any(self._sent[link] != state for link in self.links):
                    await self.synchronize()
                await self._page_lock()
            except Exception:
                logger.exception("This is a bug. Front ends have not been updated")

    async def _page_lock(self) -> None:
        """Page-lock the memory of front ends that send arrays in it, for direct device reads."""
        if not self.service.preloaded:  # The device is not open yet.
            return
        share = self.service.get_engine_parts().engine.share_host
        pages = PAGE_LOCKED_BYTES // self.num_front_ends // mmap.PAGESIZE
        num_bytes = min(FRONT_BYTES, pages * mmap.PAGESIZE)
        memories = [link.peer_memory for link in self.links]
        await asyncio.gather(
            *(
                asyncio.to_thread(memory.page_lock, share, num_bytes)
                for memory in memories
                if memory is not None and memory.is_used and not memory.is_page_locked
            )
        )

    async def families(self) -> dict[str, Families]:
        """Return the metrics of every process by process name."""
        return await self._gather_families(None)

    async def _gather_families(self, caller: Link | None) -> dict[str, Families]:
        """Return the metrics of this process and of all front ends except for the caller."""
        gathered = {NAME: collect_families(self.service.metrics.registry)}
        calls = {
            link.call(Message("families")): name
            for link, name in self.links.items()
            if link is not caller
        }
        if calls:
            done, _ = await asyncio.wait(calls, timeout=GATHER_TIMEOUT_S)
            for call in done:
                if call.exception() is None:
                    gathered[calls[call]] = call.result().values["families"]
        return gathered

    async def _send_families(self, link: Link, message: Message) -> Message:
        return Message("answer", {"families": await self._gather_families(link)})


class _ListState(NamedTuple):
    """The version of the list of vocabularies that a front end has.

    Attributes:
        num_changes: the number of the last change in the list.
        is_complete: whether everything was loaded.
    """

    num_changes: int
    is_complete: bool


class _NumberedConfig(NamedTuple):
    """A tokenizer configuration, and its number."""

    config: TokenizerConfig | None
    number: int


def _select(named: Mapping[str, T], names: list[str] | None) -> dict[str, T]:
    """Return a copy of the values for the given names; None: for all names."""
    if names is None:
        return dict(named)
    found = ((name, named.get(name)) for name in names)
    return {name: value for name, value in found if value is not None}


def _make_unknown_digest() -> NotReady:
    """Make the error for an unknown digest; a variable in the caller would make a cycle."""
    refusal = NotReady("no vocabulary has this digest here")
    refusal.code = UNKNOWN_DIGEST
    return refusal


def _log_failure(call: asyncio.Future[Message]) -> None:
    """Log an unexpected error of a front end, unless the front end has ended."""
    error = None if call.cancelled() else call.exception()
    if error is not None and not isinstance(error, ServiceError):
        logger.error("This is a bug. A front end did not follow", exc_info=error)
