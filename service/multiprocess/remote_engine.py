"""Defines the engine of a front end, which sends calls over a link to the engine process.

Threads call it like any engine; the event loop calls `run`. While the engine process is down, every
call is refused; the link reconnects as soon as the process is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.batching.work import Completion
from service.core.errors import EngineLost, ServiceError
from service.engines.base import (
    Counted,
    Decoded,
    EngineStatus,
    Residency,
    SelfTest,
)
from service.multiprocess.link.batch_messages import (
    make_decode_message,
    make_texts_message,
    read_counted,
    read_decoded,
    read_encoded,
)
from service.multiprocess.link.channel import Handle, Link
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import LinkMemory
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
RETRY_S = 0.05
UNKNOWN_DIGEST = "unknown_digest"
Value = TypeVar("Value")


class RemoteEngine:
    """A `service.engines.base.Codec` that computes in the engine process.

    Args:
        path: the Unix socket of the engine process.
        handle: handles the messages of the engine process; see `Link`.
        hello: the first message on every connection.

    Attributes:
        link: the current connection, or None.
    """

    name = "linked"

    def __init__(
        self,
        path: Path,
        handle: Handle,
        hello: Message,
    ) -> None:
        self.path = path
        self.handle = handle
        self.hello = hello
        self.memory = LinkMemory()
        self.link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Connect on the running loop, and again whenever the link ends."""
        self._loop = asyncio.get_running_loop()
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        while self.link is None:
            try:
                await self._connect_once()
            except (OSError, EngineLost):
                await asyncio.sleep(RETRY_S)

    async def _connect_once(self) -> None:
        """Connect, and use the link after the engine process has answered on it.

        As the supervisor holds the listening socket, a connection succeeds while the engine process
        is down. Calls on it would wait instead of being refused.

        Raises:
            OSError: the socket does not exist.
            EngineLost: the engine process ended before it answered.
        """
        _, link = await asyncio.get_running_loop().create_unix_connection(
            lambda: Link(self.handle, self._remove_link, self.memory), str(self.path)
        )
        assert link.handshake is not None
        try:
            await link.handshake
            if link.is_up:
                self.link = link
                link.notify(self.hello)
        finally:
            if self.link is not link:
                link.close()

    def _remove_link(self, link: Link) -> None:
        """Remove a link whose connection has ended, and connect again."""
        if link is not self.link:
            return  # It was never used; `_connect` tries again.
        self.link = None
        if not self._is_closed:
            logger.error("the engine process has ended; its unanswered calls are refused with 503")
            self._connecting = asyncio.ensure_future(self._connect())

    async def call(self, message: Message) -> Message:
        """Call the engine process, and return its answer.

        Raises:
            EngineLost: the engine process is down, or ended before the answer.
            ServiceError: the engine process refused the call.
        """
        return await self._get_link().call(message)

    def _get_link(self) -> Link:
        """Return the link; raise EngineLost if there is none."""
        if self.link is None:
            raise EngineLost("the engine process is being restarted; try again")
        return self.link

    def start_call(self, message: Message, completion: Completion[Message]) -> int:
        """Call the engine process; see `Link.start_call`."""
        return self._get_link().start_call(message, completion)

    def cancel_call(self, number: int) -> None:
        """Cancel a call; see `Link.cancel_call`."""
        if self.link is not None:
            self.link.cancel_call(number)

    async def run(self, vocabulary: Vocabulary, message: Message) -> Message:
        """Send a batch to the engine process, and first its vocabulary if that is missing there.

        Raises:
            ServiceError: the batch was refused, or the engine process ended.
        """
        try:
            return await self.call(message)
        except ServiceError as error:
            if error.code != UNKNOWN_DIGEST:
                raise
        await self.send_vocabulary(vocabulary)
        return await self.call(message)

    async def send_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Send a vocabulary to the engine process, which loads it."""
        await self._load(vocabulary, False)

    async def _load(self, vocabulary: Vocabulary, permanent: bool) -> Residency:
        content = await asyncio.to_thread(canonical.to_bytes, vocabulary)
        arrays = [np.frombuffer(content, np.uint8)]
        answer = await self.call(Message("load_vocabulary", {"permanent": permanent}, arrays))
        return read_residency(answer.values)

    def _wait(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the event loop, and wait for it in another thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Load a vocabulary in the engine process."""
        return self._wait(self._load(vocabulary, permanent))

    def status(self) -> EngineStatus:
        """Return the engine's name; the engine process reports all other values."""
        return EngineStatus((self.name,))

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate memory that the engine process reads in place."""
        return self.memory.take(num_bytes)[:num_bytes]

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row."""
        message = make_texts_message("encode", vocabulary.digest, batch)
        return read_encoded(self._wait(self.run(vocabulary, message)))

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would return for each row."""
        message = make_texts_message("count", vocabulary.digest, batch)
        return read_counted(self._wait(self.run(vocabulary, message)))

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes."""
        message = make_decode_message(vocabulary.digest, ids, offsets, skip_special_tokens)
        return read_decoded(self._wait(self.run(vocabulary, message)))

    def close(self) -> None:
        """Close the link and the memory."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self.link is not None:
            self.link.close()
        self.memory.close()


def write_residency(residency: Residency) -> dict[str, Any]:
    """Write the state of a vocabulary as the values of a message."""
    test = residency.self_test
    return {
        "engine": residency.engine,
        "encoder": residency.encoder,
        "self_test": [test.witness, test.num_texts, test.num_different, test.first_difference],
        "fallback_reason": residency.fallback_reason,
        "device_bytes": residency.device_bytes,
    }


def read_residency(values: dict[str, Any]) -> Residency:
    """Read the state of a vocabulary from the values of a message."""
    self_test = SelfTest(*values["self_test"])
    return Residency(**values | {"self_test": self_test})
