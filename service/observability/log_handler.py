"""Writes log lines without waiting for whoever reads them.

A pipe whose reader stands still, such as a log collector that hangs, is full after 64 KiB. A write
to it would block the event loop, and with it all requests and the stop of the service.
"""

from __future__ import annotations

import logging
import os
import select

from typing_extensions import override

PIPE_BUF = select.PIPE_BUF  # A pipe that poll calls writable has room for so many bytes.
PATIENCE_MS = 50


class LossyHandler(logging.Handler):
    """Writes lines to a file descriptor; lines that cannot be written at once are lost.

    The first lost line waits for PATIENCE_MS, and later ones do not wait. The next line that is
    written says how many were lost.

    Args:
        descriptor: the file descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._num_lost = 0
        self._begin = b""  # Ends a line whose rest was lost.

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if not self._is_writable():
                self._num_lost += 1
                return
            if self._num_lost:
                number, self._num_lost = self._num_lost, 0
                # One write: what the poll promised has room for no second one.
                line = f"{self.format(_make_loss(record, number))}\n{line}"
            self._write(line)
        except Exception:
            self.handleError(record)

    def _is_writable(self) -> bool:
        """Return whether a write of PIPE_BUF bytes returns at once, or fails at once."""
        return bool(self._poll.poll(0 if self._num_lost else PATIENCE_MS))

    def _write(self, line: str) -> None:
        data = self._begin + line.encode("utf-8", "backslashreplace") + b"\n"
        self._begin = b""
        for begin in range(0, len(data), PIPE_BUF):
            if begin and not self._is_writable():
                self._num_lost += 1  # The rest of a traceback.
                self._begin = b"\n"
                return
            os.write(self._descriptor, data[begin : begin + PIPE_BUF])


def _make_loss(record: logging.LogRecord, number: int) -> logging.LogRecord:
    text = "%d lines of the log were lost, as nobody read them"
    return logging.LogRecord(__name__, logging.WARNING, record.pathname, 0, text, (number,), None)
