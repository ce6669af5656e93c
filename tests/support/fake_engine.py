"""A fake engine whose ids are the bytes of a text; it can be slow, busy, or fail on a word."""

from __future__ import annotations

import threading
import time

import numpy as np

from service.engines.base import (
    Counted,
    Decoded,
    EngineStatus,
    Holding,
    Residency,
    SelfTest,
    WithoutDevice,
)
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.model.types import Characters
from vocabularies.model.vocabulary import Vocabulary


def byte_vocabulary(size: int = 256) -> Vocabulary:
    """Make a vocabulary of bytes with `size` ids; each size has another digest."""
    tokens = tuple(bytes([i]) for i in range(256)) + (None,) * (size - 256)
    letters = tuple((chr(i), i) for i in range(256))
    return Vocabulary(tokens, Characters(letters, unit="byte"))


class PanicException(BaseException):
    """The error of a Rust library that panics, which is no Exception."""


class FakeEngine(WithoutDevice):
    """An engine whose ids are bytes.

    Attributes:
        gate: while it is cleared, every call waits (a busy engine).
        delay_s: time each call takes.
        batches: the texts of every encode call, in order.
    """

    name = "cpu"
    FAILING = "BOOM"
    PANICKING = "PANIC"
    REFUSED = "REFUSE"

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.loaded: set[str] = set()
        self.closed = False

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Count the vocabulary as loaded."""
        self.loaded.add(vocabulary.digest)
        return Residency("cpu", "fake", SelfTest("itself", 1, 0))

    def settle(self) -> None:
        """Do nothing: the engine is always ready."""

    def status(self) -> EngineStatus:
        """Return the status of a single engine."""
        return EngineStatus((self.name,))

    def unload(self, digest: str) -> None:
        """Count the vocabulary as not loaded."""
        self.loaded.discard(digest)

    def residency(self, digest: str) -> Residency | None:
        """Return where a loaded vocabulary is; None if it is not loaded."""
        known = digest in self.loaded
        return Residency("cpu", "fake", SelfTest("itself", 1, 0)) if known else None

    def holdings(self) -> dict[str, Holding]:
        """Return the loaded vocabularies, each with 0 bytes."""
        return {digest: Holding(0, 0.0) for digest in self.loaded}

    def host_memory(self, num_bytes: int) -> np.ndarray:
        """Allocate ordinary memory."""
        return np.empty(num_bytes, np.uint8)

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Return bytes as ids; a text with FAILING fails the call, one with REFUSED is refused."""
        texts, errors = batch.texts()
        self.batches.append(list(texts))
        assert self.gate.wait(60)
        time.sleep(self.delay_s)
        if any(self.FAILING in text for text in texts):
            raise RuntimeError("a text with FAILING")
        if any(self.PANICKING in text for text in texts):
            raise PanicException("a text with PANICKING")
        refused = {
            i: RowError("refused", "a text with REFUSED")
            for i, t in enumerate(texts)
            if self.REFUSED in t
        }
        rows = [b"" if i in refused else text.encode() for i, text in enumerate(texts)]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        ids = np.frombuffer(b"".join(rows), np.uint8).astype(np.int32)
        places = np.concatenate([np.arange(len(row)) for row in rows]) if rows else ids
        spans = np.stack([places, places + 1], axis=1).astype(np.int64)
        return Encoded(ids, offsets, spans, errors=errors | refused)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the bytes of each text."""
        encoded = self.encode(vocabulary, batch)
        return Counted(np.diff(encoded.offsets), encoded.errors)

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: np.ndarray,
        offsets: np.ndarray,
        skip_special_tokens: bool,
    ) -> Decoded:
        """Return the ids as bytes."""
        errors = {
            row: RowError("id_out_of_range", "no id of the vocabulary", "ids[0]")
            for row in range(len(offsets) - 1)
            if any(not 0 <= i < len(vocabulary) for i in ids[offsets[row] : offsets[row + 1]])
        }
        return Decoded(ids.astype(np.uint8), offsets, errors)

    def close(self) -> None:
        """Note that the service closed the engine."""
        self.closed = True
