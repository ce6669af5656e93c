"""The engine as a front end has it: in another process, at the other end of a link.

It is an engine like the others, for threads; `run` is the same for the event loop. While the other
process is not there every call is refused, and the link is made again as soon as it is.
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
    counted_of,
    decode_message,
    decoded_of,
    encoded_of,
    texts_message,
)
from service.multiprocess.link.channel import Answer, Link
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
    """Computes ids in the engine process; a `service.engines.base.Codec`.

    Args:
        path: the Unix socket of the engine process.
        answer: takes what the engine process says or asks, as `Link` has it.
        hello: what the engine process is told first on every connection.

    Attributes:
        link: the connection of now; None while there is none.
    """

    name = "linked"

    def __init__(
        self,
        path: Path,
        answer: Answer,
        hello: Message,
    ) -> None:
        self.path, self.answer, self.hello = path, answer, hello
        self.memory = LinkMemory()
        self.link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Connect in the background, on the running loop, and again whenever the link ends."""
        self._loop = asyncio.get_running_loop()
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        while self.link is None:
            try:
                await self._connect_once()
            except (OSError, EngineLost):
                await asyncio.sleep(RETRY_S)

    async def _connect_once(self) -> None:
        """Have a link to an engine process that has answered.

        The supervisor holds the listening socket: a connection is made while nobody takes it, and
        what was asked over it would wait, not be refused.

        Raises:
            OSError: there is no such socket.
            EngineLost: the engine process ended before it answered.
        """
        _, link = await asyncio.get_running_loop().create_unix_connection(
            lambda: Link(self.answer, self._lost, self.memory), str(self.path)
        )
        assert link.mapping is not None
        try:
            await link.mapping
            if link.is_up:
                self.link = link
                link.tell(self.hello)
        finally:
            if self.link is not link:
                link.close()

    def _lost(self, link: Link) -> None:
        if link is not self.link:
            return  # It never was up; `_connect` tries again.
        self.link = None
        if not self._is_closed:
            logger.error("the engine process is gone; what it had not answered is refused with 503")
            self._connecting = asyncio.ensure_future(self._connect())

    async def call(self, message: Message) -> Message:
        """Ask the engine process.

        Raises:
            EngineLost: it is not there, or ended meanwhile.
            ServiceError: it refused.
        """
        return await self._get_link().call(message)

    def _get_link(self) -> Link:
        """The link; raises EngineLost where there is none."""
        if self.link is None:
            raise EngineLost("the engine process is being started again")
        return self.link

    def ask(self, message: Message, answer: Completion[Message]) -> int:
        """Ask the engine process, as `Link.ask`."""
        return self._get_link().ask(message, answer)

    def give_up(self, number: int) -> None:
        """Nobody wants the answer any more, as `Link.give_up`."""
        if self.link is not None:
            self.link.give_up(number)

    async def run(self, vocabulary: Vocabulary, message: Message) -> Message:
        """Have a batch computed; a vocabulary that the other process does not know is sent first.

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
        """Send a vocabulary that the engine process does not know."""
        await self._load(vocabulary, False)

    async def _load(self, vocabulary: Vocabulary, pinned: bool) -> Residency:
        content = await asyncio.to_thread(canonical.to_bytes, vocabulary)
        arrays = [np.frombuffer(content, np.uint8)]
        answer = await self.call(Message("load_vocabulary", {"pinned": pinned}, arrays))
        return residency_of(answer.values)

    def _wait(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """For threads: the loop does it."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> Residency:
        """Make a vocabulary ready in the engine process."""
        return self._wait(self._load(vocabulary, pinned))

    def status(self) -> EngineStatus:
        """Nothing of it is here; the engine process answers for itself."""
        return EngineStatus((self.name,))

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Memory that the engine process reads where it lies, lent again and again."""
        return self.memory.take(num_bytes)[:num_bytes]

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row."""
        message = texts_message("encode", vocabulary.digest, batch)
        return encoded_of(self._wait(self.run(vocabulary, message)))

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """How many ids `encode` would give each row."""
        message = texts_message("count", vocabulary.digest, batch)
        return counted_of(self._wait(self.run(vocabulary, message)))

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """The bytes of ids int64[T] in rows offsets int64[B + 1]."""
        message = decode_message(vocabulary.digest, ids, offsets, skip_special_tokens)
        return decoded_of(self._wait(self.run(vocabulary, message)))

    def close(self) -> None:
        """End the link."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self.link is not None:
            self.link.close()
        self.memory.close()


def residency_values(residency: Residency) -> dict[str, Any]:
    """How a vocabulary is held, as values."""
    test = residency.self_test
    return {
        "engine": residency.engine,
        "encoder": residency.encoder,
        "self_test": [test.witness, test.num_texts, test.num_different, test.first_difference],
        "fallback_reason": residency.fallback_reason,
        "device_bytes": residency.device_bytes,
    }


def residency_of(values: dict[str, Any]) -> Residency:
    """How the engine process holds a vocabulary."""
    return Residency(**values | {"self_test": SelfTest(*values["self_test"])})
