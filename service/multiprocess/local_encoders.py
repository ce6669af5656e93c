"""Encoders of a front end's own, for small batches of the vocabularies that it is often asked for.

A batch that goes to the engine process and comes back costs both of them more than the ids of some
short texts do, and the batches of many front ends fill the engine process' loop. So a vocabulary
whose small batches keep coming is loaded here, too, by a thread. Until then, and where there is no
room for it, they go over the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from time import perf_counter

from service.batching.batch import joined_texts
from service.batching.work import Work
from service.engines.base import Engine
from service.engines.eviction import leaving
from service.engines.fault_isolation import encode_isolated, raise_if_not_the_engines
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
WORTH_BATCHES = 100  # Small ones after which a vocabulary is loaded.
IN_VAIN_BATCHES = 1_000_000  # After which one that could not be had is tried again.
IDLE_S = 60.0  # What was used later leaves for nothing else.
TOLD_S = 10.0  # How often a batch goes to the engine process, which then knows of the use.
TIMED = 2  # Times that a batch is encoded to know its cost; the least counts.


class OwnEncoders:
    """Vocabularies that a CPU engine in this process answers for; for the event loop's thread.

    Args:
        engine: loads and computes them.
        max_bytes: what they take at most, about.
    """

    def __init__(self, engine: Engine, max_bytes: int) -> None:
        self.engine, self._max_bytes = engine, max_bytes
        self._asked = Counter[str]()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._costs: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def cost(self, digest: str) -> float | None:
        """Seconds a byte, as measured when a vocabulary was loaded; None where it is not here."""
        return self._costs.get(digest)

    def is_untold(self, digest: str, now: float) -> bool:
        """Whether the engine process should see a use of a vocabulary; then not for a while."""
        if now < self._told.get(digest, 0.0):
            return False
        self._told[digest] = now + TOLD_S
        return True

    def note(self, works: list[Work]) -> None:
        """A small batch goes to the engine process; the last of many has its vocabulary loaded."""
        vocabulary = works[0].vocabulary
        digest = vocabulary.digest
        self._asked[digest] += 1
        if self._asked[digest] < WORTH_BATCHES or digest in self._loading or digest in self._costs:
            return
        self._asked[digest] = 0
        task = asyncio.ensure_future(self._load(vocabulary, joined_texts(works)))
        self._loading[digest] = task

    async def _load(self, vocabulary: Vocabulary, batch: Batch) -> None:
        digest = vocabulary.digest
        is_loaded = await asyncio.to_thread(self._is_loaded, vocabulary, batch)
        is_named = self._loading.pop(digest, None) is not None
        if is_loaded and is_named and self._has_room(digest):
            # On the loop, where it will run: a thread beside a busy loop waits for Python's lock.
            seconds = min(self._seconds(vocabulary, batch) for _ in range(TIMED))
            self._costs[digest] = seconds / max(len(batch.data), 1)
            logger.info("small batches of %s are encoded here from now on", digest)
            return
        self._asked[digest] -= IN_VAIN_BATCHES
        self._unload(digest)

    def _is_loaded(self, vocabulary: Vocabulary, batch: Batch) -> bool:
        """Load a vocabulary and use it; False where the engine process is better at it."""
        try:
            is_fast = self.engine.load(vocabulary).engine != "reference"
            self._seconds(vocabulary, batch)
        except BaseException as error:
            raise_if_not_the_engines(error)
            logger.warning("%s is left to the engine process: %r", vocabulary.digest, error)
            return False
        return is_fast

    def _seconds(self, vocabulary: Vocabulary, batch: Batch) -> float:
        begin = perf_counter()
        encode_isolated(self.engine, vocabulary, batch)
        return perf_counter() - begin

    def _has_room(self, newest: str) -> bool:
        """Whether a vocabulary may stay; what was not used lately leaves for it."""
        holdings, now = self.engine.holdings(), perf_counter()
        busy = {digest for digest, held in holdings.items() if now - held.used < IDLE_S}
        for digest in leaving(holdings, {newest} | busy, self._max_bytes):
            self._unload(digest)
        return sum(held.num_bytes for held in self.engine.holdings().values()) <= self._max_bytes

    def keep(self, digests: Collection[str]) -> None:
        """Forget all vocabularies but these, which have a name."""
        for digest in {*self._costs, *self._loading, *self._asked} - {*digests}:
            self._loading.pop(digest, None)
            self._asked.pop(digest, None)
            self._unload(digest)

    def _unload(self, digest: str) -> None:
        self._costs.pop(digest, None)
        self._told.pop(digest, None)
        self.engine.unload(digest)

    def close(self) -> None:
        """Give everything back."""
        self._costs.clear()
        self.engine.close()
