"""The service for benchmarks.soak: a text with MARK in it finds the engine without memory."""

from __future__ import annotations

import sys
from typing import Any

from service import app
from service.__main__ import main
from service.cpu_engine import CpuEngine
from service.settings import Settings
from vocabularies.batch import Batch, Encoded
from vocabularies.vocabulary import Vocabulary

__all__ = ["MARK"]

MARK = "out of memory, please"
MARKED_CHARACTERS = 100  # Longer texts are not looked through.


class ExhaustibleEngine(CpuEngine):
    """A CPU engine that fails as an exhausted one does, for whatever batch holds MARK."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row.

        Raises:
            MemoryError: MARK is in a text.
        """
        texts = batch.texts()[0] if batch.has_texts else ()
        if any(len(text) <= MARKED_CHARACTERS and MARK in text for text in texts):
            raise MemoryError("forced by the soak")
        return super().encode(vocabulary, batch)


def _make_engine(settings: Settings, *_: Any) -> ExhaustibleEngine:
    return ExhaustibleEngine()


if __name__ == "__main__":
    app.make_engine = _make_engine
    sys.exit(main(sys.argv[1:]))
