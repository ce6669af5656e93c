"""What all streams of one service together may hold: their number, their unsent bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from service.core.errors import TooManyStreams


class StreamBudget:
    """Counts the open streams and the bytes that their answers hold unsent.

    Args:
        max_streams: Arrow, FASTA and gRPC streams that may be open at once.
        max_bytes: of one stream's answer.
        max_total_bytes: of all; above it only a stream that holds nothing may go on.

    Attributes:
        num_streams: streams that are being answered.
        num_bytes: what their answers hold.
        changed: notified when they hold more or less.
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
        """Count one more stream, over HTTP or gRPC, until it ends.

        Raises:
            TooManyStreams: there are `max_streams` already.
        """
        limit = self.max_streams
        if self.num_streams >= limit:
            raise TooManyStreams(f"{self.num_streams} streams are open; max_streams is {limit}")
        self.num_streams += 1
        try:
            yield
        finally:
            self.num_streams -= 1

    def has_room(self, own_bytes: int) -> bool:
        """Whether a stream that holds `own_bytes` may hold more."""
        if own_bytes and self.num_bytes > self.max_total_bytes:
            return False
        return own_bytes <= self.max_bytes
