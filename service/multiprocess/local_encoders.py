"""Encoders in a front end, for small batches of the vocabularies that it is often asked for.

A batch that goes to the engine process and comes back costs both of them more than the ids of some
short texts do, and the batches of many front ends fill the engine process' loop. So a vocabulary
whose small batches keep coming is loaded here, too, by a thread. Until then, and where there is no
room for it, they go over the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from time import perf_counter
from typing import Any

from service.batching.runner import join_texts
from service.batching.work import TextWork
from service.engines.base import Engine
from service.engines.eviction import choose_evicted
from service.engines.fault_isolation import encode_isolated, reraise_unless_failure
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
WORTH_BATCHES = 100  # Small ones after which a vocabulary is loaded.
RETRY_BATCHES = 1_000_000  # Small ones after which one that could not be loaded is tried again.
IDLE_S = 60.0  # What was used later leaves for nothing else.
REPORT_S = 10.0  # How often a batch goes to the engine process, which evicts what nobody uses.
TIMED = 2  # Times that a batch is encoded to know its cost; the least counts.


class LocalEncoders:
    """Vocabularies that a CPU engine in this process answers for; for the event loop's thread.

    Args:
        engine: loads and computes them.
        max_bytes: what they take at most, about.
    """

    def __init__(self, engine: Engine, max_bytes: int) -> None:
        self.engine = engine
        self._max_bytes = max_bytes
        self._num_batches = Counter[str]()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._costs: dict[str, float] = {}
        self._report_due: dict[str, float] = {}

    def cost(self, digest: str) -> float | None:
        """Seconds a byte, as measured when a vocabulary was loaded; None where it is not here."""
        return self._costs.get(digest)

    def claim_report(self, digest: str, now: float) -> bool:
        """Return whether the next batch should show the engine process that a vocabulary is used.

        The next one is due REPORT_S seconds later.
        """
        if now < self._report_due.get(digest, 0.0):
            return False
        self._report_due[digest] = now + REPORT_S
        return True

    def count_batch(self, works: Sequence[TextWork[Any]]) -> None:
        """Count a small batch that goes to the engine process; load its vocabulary after many."""
        vocabulary = works[0].vocabulary
        digest = vocabulary.digest
        self._num_batches[digest] += 1
        if (
            self._num_batches[digest] < WORTH_BATCHES
            or digest in self._loading
            or digest in self._costs
        ):
            return
        self._num_batches[digest] = 0
        task = asyncio.ensure_future(self._load(vocabulary, join_texts(works)))
        self._loading[digest] = task

    async def _load(self, vocabulary: Vocabulary, batch: Batch) -> None:
        digest = vocabulary.digest
        is_fast = await asyncio.to_thread(self._load_and_try, vocabulary, batch)
        is_named = self._loading.pop(digest, None) is not None
        if is_fast and is_named and self._make_room(digest):
            # On the loop, where it will run: a thread beside a busy loop waits for Python's lock.
            seconds = min(self._time(vocabulary, batch) for _ in range(TIMED))
            self._costs[digest] = seconds / max(len(batch.data), 1)
            logger.info("small batches of %s are encoded here from now on", digest)
            return
        self._num_batches[digest] -= RETRY_BATCHES
        self._unload(digest)

    def _load_and_try(self, vocabulary: Vocabulary, batch: Batch) -> bool:
        """Load a vocabulary and encode a batch; return False where the engine process is better."""
        try:
            is_fast = self.engine.load(vocabulary).engine != "reference"
            self._time(vocabulary, batch)
        except BaseException as error:
            reraise_unless_failure(error)
            logger.warning("%s is left to the engine process: %r", vocabulary.digest, error)
            return False
        return is_fast

    def _time(self, vocabulary: Vocabulary, batch: Batch) -> float:
        """Encode a batch and return the seconds."""
        begin = perf_counter()
        encode_isolated(self.engine, vocabulary, batch)
        return perf_counter() - begin

    def _make_room(self, newest: str) -> bool:
        """Unload what was not used lately; return whether the newest vocabulary may stay."""
        holdings, now = self.engine.holdings(), perf_counter()
        busy = {digest for digest, held in holdings.items() if now - held.used < IDLE_S}
        for digest in choose_evicted(holdings, {newest} | busy, self._max_bytes):
            self._unload(digest)
        return sum(held.num_bytes for held in self.engine.holdings().values()) <= self._max_bytes

    def keep(self, digests: Collection[str]) -> None:
        """Forget all vocabularies but these, which have a name."""
        for digest in {*self._costs, *self._loading, *self._num_batches} - {*digests}:
            self._loading.pop(digest, None)
            self._num_batches.pop(digest, None)
            self._unload(digest)

    def _unload(self, digest: str) -> None:
        self._costs.pop(digest, None)
        self._report_due.pop(digest, None)
        self.engine.unload(digest)

    def close(self) -> None:
        """Give everything back."""
        self._costs.clear()
        self.engine.close()
