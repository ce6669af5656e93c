"""Writes record batches in Arrow's stream format without copying large buffers.

`RecordBatch.serialize` would copy a batch into one buffer. Arrow's stream writer passes the buffers
of a batch to its file instead, and `_Pieces` is a file that keeps them.
"""

from __future__ import annotations

try:
    import pyarrow as pa
except ModuleNotFoundError:  # The routes call `check_installed` first.
    pa = None

LONG_BYTES = 1 << 16  # Shorter buffers are joined, which is faster than sending each.


class PieceWriter:
    """Writes the messages of one stream.

    Args:
        schema: the schema of the record batches.

    Attributes:
        head: the message that contains the schema and begins the stream.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.head = memoryview(schema.serialize())
        self._file = _Pieces()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), schema)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema))
        self._file.pop_pieces()  # Drop the schema, which the writer writes before the first batch.

    def pieces(
        self, batch: pa.RecordBatch, metadata: dict[str, str] | None = None
    ) -> list[memoryview]:
        """Return a message with its own metadata, in pieces that refer to the batch's memory."""
        self._writer.write_batch(batch, metadata)
        return self._file.pop_pieces()


class _Pieces:
    """A file object that collects the buffers that Arrow writes."""

    closed = False

    def __init__(self) -> None:
        self._done: list[memoryview] = []
        self._short: list[bytes | pa.Buffer] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        """Store bytes, or a buffer of a batch."""
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

    def pop_pieces(self) -> list[memoryview]:
        """Return the buffers written since the last call."""
        self._join()
        done = self._done
        self._done = []
        return done

    def flush(self) -> None:
        """Do nothing, as nothing is buffered."""

    def close(self) -> None:
        """Do nothing, as no file is open."""

    def writable(self) -> bool:
        """Return True."""
        return True
