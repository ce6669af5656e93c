"""Serves for benchmarks.service.soak with an engine that has no memory for texts with MARK.

The engine is the one that the service chooses, that of the GPU where there is one.
"""

from __future__ import annotations

import sys
from typing import Any

from service.cli.parser import main
from service.core.settings import Settings
from service.engines.base import Engine
from service.server import app
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary

MARK = "out of memory, please"
MARKED_CHARACTERS = 100  # Longer texts are not looked through.
make_engine = app.make_engine


def make_exhaustible(settings: Settings, *options: Any) -> Engine:
    """Make the service's engine fail, as without memory, for every batch that holds MARK."""
    engine = make_engine(settings, *options)
    encode = engine.encode

    def encode_unless_marked(vocabulary: Vocabulary, batch: Batch) -> Encoded:
        texts = batch.texts()[0] if batch.has_texts else ()
        if any(len(text) <= MARKED_CHARACTERS and MARK in text for text in texts):
            raise MemoryError("forced by the soak")
        return encode(vocabulary, batch)

    engine.encode = encode_unless_marked  # type: ignore[method-assign]
    return engine


if __name__ == "__main__":
    app.make_engine = make_exhaustible  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
