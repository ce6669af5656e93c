"""Limits the number of open streams of one service, and the unsent bytes of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from service.core.errors import TooManyStreams


class StreamBudget:
    """Counts the open streams, and the bytes of their answers that wait to be sent.

    Args:
        max_streams: the maximum number of open Arrow, FASTA and gRPC streams.
        max_bytes: the maximum number of unsent bytes of one stream.
        max_total_bytes: the maximum number of unsent bytes of all streams. Beyond it, only streams
            without unsent bytes may add some.

    Attributes:
        num_streams: the number of open streams.
        num_bytes: the unsent bytes of all streams.
        changed: a condition that is notified when `num_bytes` changes.
    """

    def __init__(self, max_streams: int, max_bytes: int, max_total_bytes: int) -> None:
        self.max_streams = max_streams
        self.max_bytes = max_bytes
        self.max_total_bytes = max_total_bytes
        self.num_streams = 0
        self.num_bytes = 0
        self.changed = asyncio.Condition()

    @contextmanager
    def open_stream(self) -> Iterator[None]:
        """Count a stream as open until the context ends.

        Raises:
            TooManyStreams: `max_streams` streams are open already.
        """
        limit = self.max_streams
        if self.num_streams >= limit:
            raise TooManyStreams(f"{self.num_streams} streams are open; max_streams is {limit}")
        self.num_streams += 1
        try:
            yield
        finally:
            self.num_streams -= 1

    def can_add(self, own_bytes: int) -> bool:
        """Return whether a stream that has `own_bytes` unsent bytes may add more."""
        if own_bytes and self.num_bytes > self.max_total_bytes:
            return False
        return own_bytes <= self.max_bytes
