"""Record batches as pieces of Arrow's stream format: what is long is sent from where it lies.

`RecordBatch.serialize` copies all of a batch into one buffer. A writer hands its buffers to the
file that it writes to as they are, so that file keeps them.
"""

from __future__ import annotations

import pyarrow as pa

LONG_BYTES = 1 << 16  # Shorter buffers are joined, which costs less than sending them.


class PieceWriter:
    """The messages of one stream.

    Args:
        schema: of its record batches.

    Attributes:
        head: the message that the stream begins with.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.head = memoryview(schema.serialize())
        self._file = _Pieces()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), schema)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema))
        self._file.taken()  # The schema comes with the first batch.

    def pieces(self, batch: pa.RecordBatch) -> list[memoryview]:
        """One message; the pieces keep the batch's memory."""
        self._writer.write_batch(batch)
        return self._file.taken()


class _Pieces:
    """The few methods that Arrow calls of a Python file; it gives bytes, or buffers of a batch."""

    closed = False

    def __init__(self) -> None:
        self._done: list[memoryview] = []
        self._short: list[bytes | pa.Buffer] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        """Keep what comes."""
        if len(data) < LONG_BYTES:
            self._short.append(data)
        else:
            self._join()
            self._done.append(memoryview(data))
        return len(data)

    def _join(self) -> None:
        if self._short:
            self._done.append(memoryview(b"".join(self._short)))
            self._short = []

    def taken(self) -> list[memoryview]:
        """What was written since the last time."""
        self._join()
        done, self._done = self._done, []
        return done

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is open here."""

    def writable(self) -> bool:
        """It is."""
        return True
