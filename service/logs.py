"""Log lines as text or as JSON, each with the id of the request that it belongs to.

No line has any input: lengths, codes and digests only.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

__all__ = ["REQUEST_ID", "JsonLines", "TextLines", "fields"]

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being answered, wherever its code runs."""


def fields(**values: object) -> dict[str, Any]:
    """What a line says beside its message, for `extra`."""
    return {"fields": values}


class TextLines(logging.Formatter):
    """Lines for people: the message, then ``name=value``; of a process where there are several."""

    def __init__(self, process: str = "") -> None:
        place = f"{process} " if process else ""
        super().__init__(f"%(asctime)s %(levelname)s {place}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback."""
        values = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        return f"{super().formatMessage(record)} {values}".rstrip()


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, error, and what else the line says."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    values: dict[str, Any] = getattr(record, "fields", {})
    request_id = REQUEST_ID.get()
    return {"request_id": request_id, **values} if request_id else values
