"""Encodes small batches of frequently used vocabularies within a front end.

For some short texts, sending a batch to the engine process and back takes more time than encoding
them, and the batches of many front ends overload the engine process's event loop. So after
LOAD_AFTER_BATCHES small batches, a thread also loads the vocabulary in the front end. Until then,
and if it does not fit into memory, its batches are sent over the link.
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
LOAD_AFTER_BATCHES = 100  # Small batches of one vocabulary.
RETRY_AFTER_BATCHES = 1_000_000  # Small batches of a vocabulary that could not be loaded.
MIN_IDLE_S = 60.0  # Vocabularies used within this time are not evicted.
REPORT_S = 10.0  # How often a batch goes to the engine process, which evicts unused vocabularies.
NUM_TIMINGS = 2  # Of a batch, to measure its cost; the shortest counts.


class LocalEncoders:
    """The vocabularies of a CPU engine in this process; all calls are on the event loop's thread.

    Args:
        engine: loads the vocabularies and encodes the batches.
        max_bytes: the approximate limit of the vocabularies' memory.
    """

    def __init__(self, engine: Engine, max_bytes: int) -> None:
        self.engine = engine
        self._max_bytes = max_bytes
        self._num_batches = Counter[str]()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._costs: dict[str, float] = {}
        self._report_due: dict[str, float] = {}

    def cost(self, digest: str) -> float | None:
        """Return the measured seconds per byte of a vocabulary; None if it is not loaded here."""
        return self._costs.get(digest)

    def claim_report(self, digest: str, now: float) -> bool:
        """Return whether the next batch should go to the engine process, to report the use.

        If so, the next report becomes due REPORT_S seconds later.
        """
        if now < self._report_due.get(digest, 0.0):
            return False
        self._report_due[digest] = now + REPORT_S
        return True

    def count_batch(self, works: Sequence[TextWork[Any]]) -> None:
        """Count a small batch for the engine process; load its vocabulary here after many."""
        vocabulary = works[0].vocabulary
        digest = vocabulary.digest
        self._num_batches[digest] += 1
        if (
            self._num_batches[digest] < LOAD_AFTER_BATCHES
            or digest in self._loading
            or digest in self._costs
        ):
            return
        self._num_batches[digest] = 0
        task = asyncio.ensure_future(self._load(vocabulary, join_texts(works)))
        self._loading[digest] = task

    async def _load(self, vocabulary: Vocabulary, batch: Batch) -> None:
        """Load a vocabulary and measure its cost, unless it is slow or does not fit."""
        digest = vocabulary.digest
        is_fast = await asyncio.to_thread(self._load_and_try, vocabulary, batch)
        is_still_named = self._loading.pop(digest, None) is not None
        if is_fast and is_still_named and self._evict_for(digest):
            # Measured on the loop, where it will run: a thread would wait for Python's lock.
            seconds = min(self._time(vocabulary, batch) for _ in range(NUM_TIMINGS))
            self._costs[digest] = seconds / max(len(batch.data), 1)
            logger.info("small batches of %s are encoded here from now on", digest)
            return
        self._num_batches[digest] -= RETRY_AFTER_BATCHES
        self._unload(digest)

    def _load_and_try(self, vocabulary: Vocabulary, batch: Batch) -> bool:
        """Load a vocabulary and encode a batch; return False if it is slow or fails."""
        try:
            is_fast = self.engine.load(vocabulary).engine != "reference"
            self._time(vocabulary, batch)
        except BaseException as error:
            reraise_unless_failure(error)
            logger.warning("%s cannot be loaded in a front end: %r", vocabulary.digest, error)
            return False
        return is_fast

    def _time(self, vocabulary: Vocabulary, batch: Batch) -> float:
        """Encode a batch and return the seconds."""
        begin = perf_counter()
        encode_isolated(self.engine, vocabulary, batch)
        return perf_counter() - begin

    def _evict_for(self, newest: str) -> bool:
        """Evict vocabularies not used lately; return whether the newest one then fits."""
        holdings, now = self.engine.holdings(), perf_counter()
        busy = {digest for digest, each in holdings.items() if now - each.used < MIN_IDLE_S}
        for digest in choose_evicted(holdings, {newest} | busy, self._max_bytes):
            self._unload(digest)
        return sum(each.num_bytes for each in self.engine.holdings().values()) <= self._max_bytes

    def keep_only(self, digests: Collection[str]) -> None:
        """Unload all vocabularies except the given ones."""
        for digest in {*self._costs, *self._loading, *self._num_batches} - {*digests}:
            self._loading.pop(digest, None)
            self._num_batches.pop(digest, None)
            self._unload(digest)

    def _unload(self, digest: str) -> None:
        self._costs.pop(digest, None)
        self._report_due.pop(digest, None)
        self.engine.unload(digest)

    def close(self) -> None:
        """Unload all vocabularies, and close the engine."""
        self._costs.clear()
        self.engine.close()
