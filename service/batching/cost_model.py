"""What a byte costs the engine, for each vocabulary and operation, as its last batches took."""

from __future__ import annotations

MAX_MEASURED = 4_096  # Vocabularies and operations; the last ones stay.
MOST_TIMES = 4  # What one batch counts at most: it may have lost its core meanwhile.
LEAST_BYTES = 64  # Of a batch: less costs as much.
UNKNOWN_S = 0.002  # A byte, until it is known: longer than any batch may hold the loop.

Kind = tuple[str, str]


class Costs:
    """Moving averages of seconds a byte, by digest and operation."""

    def __init__(self) -> None:
        self._seconds_per_byte: dict[Kind, float] = {}

    def expected_s(self, kind: Kind, num_bytes: int) -> float:
        """Seconds that so many bytes should take."""
        return num_bytes * self._seconds_per_byte.get(kind, UNKNOWN_S)

    def begin(self, kind: Kind, seconds_per_byte: float) -> None:
        """What a byte costs where no batch has told yet."""
        self._seconds_per_byte.setdefault(kind, seconds_per_byte)

    def forget(self, kind: Kind) -> None:
        """What batches told counts no more."""
        self._seconds_per_byte.pop(kind, None)

    def note(self, kind: Kind, num_bytes: int, seconds: float) -> None:
        """A batch took so long."""
        measured = seconds / max(num_bytes, LEAST_BYTES)
        before = self._seconds_per_byte.pop(kind, measured)
        self._seconds_per_byte[kind] = 0.75 * before + 0.25 * min(measured, MOST_TIMES * before)
        if len(self._seconds_per_byte) > MAX_MEASURED:  # Uploads come and go.
            del self._seconds_per_byte[next(iter(self._seconds_per_byte))]
