"""Writes rejected records: a line of JSON for each, with its place and the reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from service.corpus.documents import Reject
from service.corpus.inputs import Input
from service.corpus.parts.checkpoint import Cursor

UNITS = {
    "jsonl": "byte",
    "lines": "byte",
    "text": "file",
    "parquet": "row",
    "arrow": "row",
    "fasta": "record",
    "fastq": "record",
}
"""The unit that places count, from 0, by the format of the file."""


class RejectFile:
    """Writes the rejects of one part.

    Args:
        path: the file.
        inputs: the files of the job.
        cursor: where the part continues; later rejects in the file, written by an earlier run, are
            dropped.

    Attributes:
        num_rejects: the number of rejects.
    """

    def __init__(self, path: Path, inputs: Sequence[Input], cursor: Cursor) -> None:
        self.path = path
        self.num_rejects = 0
        self._inputs = inputs
        self._keep_before(cursor)
        self._file = open(path, "ab")

    def _keep_before(self, cursor: Cursor) -> None:
        """Drop the lines after the cursor, and an incomplete last line."""
        if not self.path.exists():
            return
        size = 0
        with open(self.path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                reject = orjson.loads(line)
                if (reject["input"], reject["place"]) >= (cursor.input, cursor.place):
                    break
                size += len(line)
                self.num_rejects += 1
        with open(self.path, "r+b") as file:
            file.truncate(size)

    def write(self, input_number: int, rejects: Sequence[Reject]) -> None:
        """Write the rejects of one file."""
        file = self._inputs[input_number]
        for reject in rejects:
            line = {
                "input": input_number,
                "path": file.name,
                "unit": UNITS[file.format],
                **reject._asdict(),
            }
            self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self.num_rejects += len(rejects)

    def flush(self) -> None:
        """Write buffered rejects to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; remove it if there are no rejects."""
        self._file.close()
        if not self.num_rejects:
            self.path.unlink(missing_ok=True)
