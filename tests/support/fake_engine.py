"""The one fake engine: a text's ids are its bytes. It can be slow, closed, or fail on a word."""

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
    """Ids are bytes; another size is another vocabulary with another digest."""
    tokens = tuple(bytes([i]) for i in range(256)) + (None,) * (size - 256)
    letters = tuple((chr(i), i) for i in range(256))
    return Vocabulary(tokens, Characters(letters, unit="byte"))


class PanicException(BaseException):
    """What a Rust library raises when it panics: no Exception."""


class FakeEngine(WithoutDevice):
    """Ids are bytes.

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

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> Residency:
        """Remember it."""
        self.loaded.add(vocabulary.digest)
        return Residency("cpu", "fake", SelfTest("itself", 1, 0))

    def settle(self) -> None:
        """Nothing to wait for."""

    def status(self) -> EngineStatus:
        """Alone here."""
        return EngineStatus((self.name,))

    def unload(self, digest: str) -> None:
        """Forget it."""
        self.loaded.discard(digest)

    def residency(self, digest: str) -> Residency | None:
        """Whether it is loaded."""
        known = digest in self.loaded
        return Residency("cpu", "fake", SelfTest("itself", 1, 0)) if known else None

    def holdings(self) -> dict[str, Holding]:
        """Of no size."""
        return {digest: Holding(0, 0.0) for digest in self.loaded}

    def host_memory(self, num_bytes: int) -> np.ndarray:
        """Ordinary memory."""
        return np.empty(num_bytes, np.uint8)

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Bytes as ids; a text with FAILING fails the call, one with REFUSED is refused."""
        texts, errors = batch.texts()
        self.batches.append(list(texts))
        assert self.gate.wait(60)
        time.sleep(self.delay_s)
        if any(self.FAILING in text for text in texts):
            raise RuntimeError("told to fail")
        if any(self.PANICKING in text for text in texts):
            raise PanicException("told to panic")
        refused = {
            i: RowError("refused", "told to refuse")
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
        """Lengths in bytes."""
        encoded = self.encode(vocabulary, batch)
        return Counted(np.diff(encoded.offsets), encoded.errors)

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: np.ndarray,
        offsets: np.ndarray,
        skip_special_tokens: bool,
    ) -> Decoded:
        """Ids as bytes."""
        errors = {
            row: RowError("id_out_of_range", "no id of the vocabulary", "ids[0]")
            for row in range(len(offsets) - 1)
            if any(not 0 <= i < len(vocabulary) for i in ids[offsets[row] : offsets[row + 1]])
        }
        return Decoded(ids.astype(np.uint8), offsets, errors)

    def close(self) -> None:
        """Remember that the service gave it back."""
        self.closed = True
