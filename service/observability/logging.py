"""Formats log lines as text or JSON, each with the id of the request.

No line contains an input of a client, only lengths, codes and digests. For an exception, only the
type and the traceback are written, because its message may quote an input.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson
from typing_extensions import override

from service.core.context_vars import REQUEST_ID
from service.core.settings import Settings
from service.observability.log_handler import LossyHandler


def fields(**values: object) -> dict[str, Any]:
    """Make the argument `extra` of a log call from named values."""
    return {"fields": values}


class QuietFormatter(logging.Formatter):
    """Formats log lines without the messages of exceptions."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line; ignore the exception text that another formatter has cached."""
        record.exc_text = None
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatException(self, ei: Any) -> str:
        """Format the traceback and the type of an exception, with its cause first."""
        return "".join(_tracebacks(ei[1])).rstrip()


def _tracebacks(error: BaseException | None) -> list[str]:
    if error is None:
        return []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = _tracebacks(cause)
    lines += traceback.format_tb(error.__traceback__)
    lines.append(f"{type(error).__module__}.{type(error).__qualname__}\n")
    for part in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        lines += _tracebacks(part)
    return lines


class TextLines(QuietFormatter):
    """Formats lines for people: the name of the process if given, the message, ``name=value``."""

    def __init__(self, process: str = "") -> None:
        prefix = f"{process} " if process else ""
        super().__init__(f"%(asctime)s %(levelname)s {prefix}%(name)s: %(message)s")

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        values = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        return f"{super().formatMessage(record)} {values}".rstrip()


class JsonLines(QuietFormatter):
    """Formats each line as a JSON object: time, level, logger, message, error and named values."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    @override
    def format(self, record: logging.LogRecord) -> str:
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


def is_unlogged(record: logging.LogRecord) -> bool:
    """Return whether a line of uvicorn says something that has not been logged.

    Exceptions are logged where they occur. Each connection that sends no HTTP has a line, which
    clients could fill a disk with; `ClosedConnections` counts these.
    """
    if record.msg == "Invalid HTTP request received.":
        return False
    error = record.exc_info[1] if record.exc_info else None
    return not getattr(error, "is_logged", False)


def configure(settings: Settings, process: str = "") -> None:
    """Write log lines to stderr, with the name of the process if there are several.

    A native library that crashes also leaves the stacks of all threads there. A process that was
    started without stderr writes nothing.
    """
    level = settings.log_level.upper()
    form = JsonLines(process) if settings.log_format == "json" else TextLines(process)
    has_log = sys.stderr is not None
    handler = LossyHandler(sys.stderr.fileno()) if has_log else logging.NullHandler()
    if has_log:
        faulthandler.enable()
    handler.setFormatter(form)
    logging.basicConfig(level=level, handlers=[handler])
    # uvicorn's lines about starting and stopping repeat those of the service.
    server = logging.getLogger("uvicorn.error")
    server.setLevel(max(logging.WARNING, logging.getLevelName(level)))
    server.addFilter(is_unlogged)
